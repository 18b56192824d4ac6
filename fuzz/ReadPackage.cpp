//===- ReadPackage.cpp - compiled layers ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../runtime/src/support/Sha256.h"
#include "Readers.h"
#include "moert/Package.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <cstring>

using namespace moec::testing;

void moec::testing::sealPackage(std::string &file) {
  if (file.size() < sizeof(moert::Sha256Digest))
    return;
  size_t size = file.size() - sizeof(moert::Sha256Digest);
  moert::Sha256Digest digest = moert::sha256(file.data(), size);
  std::copy(digest.begin(), digest.end(), file.begin() + size);
}

Reading moec::testing::readPackage(llvm::StringRef file) {
  // An exact-size copy, so that a sanitizer sees each read beyond it.
  auto memory = std::make_unique<char[]>(file.size());
  if (!file.empty())
    std::memcpy(memory.get(), file.data(), file.size());
  auto package = moert::Package::fromMemory(memory.get(), file.size());
  if (!package)
    return {false, package.status().message().empty()
                       ? "refused without a message"
                       : ""};
  for (const char *architecture : {"sm_80", "sm_90", "sm_100", ""})
    (void)moert::chooseImage(*package, architecture);
  for (const moert::PackageProgram &program : package->programs) {
    const moert::Plan &plan = program.plan;
    if (!moert::workspaceBytes(plan, plan.maxTokens))
      return {true, "the size of the workspace has no value"};
    for (const moert::Variant &variant : plan.variants)
      if (!moert::layoutWorkspace(plan, variant, variant.maxTokens))
        return {true, "the layout of the workspace has no value"};
  }
  auto packed = moert::packPackage(*package);
  if (!packed)
    return {true,
            "accepted, but not packed again: " + packed.status().message()};
  auto again = moert::Package::fromMemory(packed->data(), packed->size());
  if (!again)
    return {true,
            "packed, but not accepted again: " + again.status().message()};
  return {true, ""};
}
