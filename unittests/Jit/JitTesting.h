//===- JitTesting.h - what the tests of the JIT share -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_JIT_JITTESTING_H
#define MOEC_UNITTESTS_JIT_JITTESTING_H

#include "moec/Jit/Jit.h"
#include "gtest/gtest.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace moec::test {

/// A test with a folder of its own, which is removed afterwards.
class FolderTest : public ::testing::Test {
protected:
  void SetUp() override;
  void TearDown() override;

  std::string getPath(llvm::StringRef name) const {
    return folder + "/" + name.str();
  }
  /// The names in the folder, or in one within it.
  std::set<std::string> list(llvm::StringRef within = "") const;
  /// Collects warnings into `warnings`.
  std::function<void(const std::string &)> collect();

  std::string folder;
  std::vector<std::string> warnings;
};

/// A small layer as JSON.
SourceText makeSpec(int maxTokens = 64);

/// A layer, compiled for sm_80 without ptxas, that states this key.
moert::Package makePackage(const std::string &key, int maxTokens = 64);

/// 64 digits, all of them `digit`.
std::string makeKey(char digit);

std::string pack(const moert::Package &package);

std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &text);

/// Runs `body` in this number of processes at once and returns how many did not
/// return true. Their output is discarded.
int countFailedProcesses(int count, const std::function<bool(int)> &body);

} // namespace moec::test

#endif // MOEC_UNITTESTS_JIT_JITTESTING_H
