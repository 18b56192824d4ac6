//===- ReadTuned.cpp - files of measured configs ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Readers.h"
#include "moec/Compiler/TunedConfigs.h"
#include "moec/Schedules/ConfigText.h"

using namespace moec;
using namespace moec::testing;

Reading moec::testing::readTuned(llvm::StringRef text) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  auto configs =
      readTunedConfigs(SourceText("t.json", text.str()), "sm_90a", os);
  if (failed(configs))
    return {false, messages.empty() ? "refused without a message" : ""};
  for (const std::string &config : *configs)
    if (llvm::Expected<ForcedConfig> forced = ForcedConfig::parse(config);
        !forced)
      return {true,
              "accepted, but no option: " + llvm::toString(forced.takeError())};
  return {true, ""};
}
