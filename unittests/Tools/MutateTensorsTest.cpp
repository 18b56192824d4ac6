//===- MutateTensorsTest.cpp - mutated tensor files -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../fuzz/Readers.h"
#include "Mutator.h"

#include "gtest/gtest.h"

using namespace moec::testing;

namespace {

constexpr int kNumMutants = 10000;

const llvm::StringRef kWords[] = {
    "{",           "}",
    "[",           "]",
    ",",           "\"",
    "null",        "-1",
    "1e3",         "\"shape\"",
    "\"F8_E4M3\"", "\"F4\"",
    "\"BOOL\"",    "\"I64\"",
    "[0, 0]",      "\"__metadata__\": {\"a\": \"b\"},"};

constexpr llvm::StringLiteral kHeader =
    R"({"__metadata__": {"format": "pt"},)"
    R"("a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},)"
    R"("b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},)"
    R"("c": {"dtype": "I8", "shape": [], "data_offsets": [32, 33]}})";

std::string makeFile(llvm::StringRef text) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i)
    file[i] = char(uint64_t(text.size()) >> (8 * i));
  return file + text.str() + std::string(33, 'x');
}

bool run(const std::string &file) {
  Reading reading = readTensors(file);
  EXPECT_EQ(reading.broken, "");
  return reading.accepted;
}

} // namespace

TEST(MutateTensors, HeaderIsReadWithoutACrash) {
  ASSERT_TRUE(run(makeFile(kHeader)));
  Mutator mutator(20, kWords);
  int numAccepted = 0;
  for (int i = 0; i < kNumMutants; ++i)
    numAccepted += run(makeFile(mutator.mutate(kHeader)));
  EXPECT_GT(numAccepted, kNumMutants / 100);
}

TEST(MutateTensors, FileIsReadWithoutACrash) {
  std::string file = makeFile(kHeader);
  Mutator mutator(21, kWords);
  for (int i = 0; i < kNumMutants; ++i)
    run(mutator.mutate(file));
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(run(file.substr(0, size)));
}
