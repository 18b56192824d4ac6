//===- ReadIndex.cpp - the index of a checkpoint ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeReaders.h"
#include "moert/Checkpoint.h"

using namespace moec::testing;

Reading moec::testing::readIndex(llvm::StringRef text) {
  // An exact-size copy, so that a sanitizer sees each read beyond it.
  std::string copy = text.str();
  auto index = moert::parseCheckpointIndex(copy.data(), copy.size());
  if (!index)
    return {false, index.status().message().empty()
                       ? "refused without a message"
                       : ""};
  for (const auto &[tensor, file] : *index)
    if (file.empty() || file[0] == '/' ||
        ("/" + file + "/").find("/../") != std::string::npos)
      return {true, "'" + tensor + "' is outside of the folder: " + file};
  return {true, ""};
}
