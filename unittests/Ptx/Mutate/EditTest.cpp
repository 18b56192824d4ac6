//===- EditTest.cpp - tests of changes to a kernel's text -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxMutate/Mutants/Edit.h"
#include "MutateTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using namespace moec::ptx::mutate::test;

namespace {

/// Opcodes from label `l` on.
std::string textFromLabel(const RawKernel &kernel) {
  std::string text;
  for (size_t i = kernel.scopes[0].labels.at("l");
       i < kernel.instructions.size(); ++i)
    text += opcodeOf(kernel.instructions[i]) + ";";
  return text;
}

TEST(Edit, LabelsStayBeforeTheirInstruction) {
  RawKernel kernel =
      parseBody(
          "mov.b32 %r1, 0;\nl:\nadd.s32 %r1, %r1, 1;\nxor.b32 %r1, %r1, 3;")
          .kernels[0];
  EXPECT_EQ(textFromLabel(kernel), "add.s32;xor.b32;ret;");
  size_t add = kernel.scopes[0].labels.at("l");
  insertBefore(kernel, add, makeInstruction("mov.b32", {}));
  EXPECT_EQ(textFromLabel(kernel), "mov.b32;add.s32;xor.b32;ret;");
  EXPECT_EQ(kernel.instructions[add].line, kernel.instructions[add + 1].line);
  erase(kernel, add);
  EXPECT_EQ(textFromLabel(kernel), "add.s32;xor.b32;ret;");
  erase(kernel, add);
  EXPECT_EQ(textFromLabel(kernel), "xor.b32;ret;");
  erase(kernel, 0);
  EXPECT_EQ(textFromLabel(kernel), "xor.b32;ret;");
}

TEST(Edit, Words) {
  RawInstruction wait = makeInstruction("cp.async.wait_group", {makeNumber(2)});
  EXPECT_TRUE(startsWith(wait, "cp.async"));
  EXPECT_FALSE(startsWith(wait, "cp.async.wait"));
  EXPECT_TRUE(has(wait, "wait_group"));
  EXPECT_EQ(opcodeOf(wait), "cp.async.wait_group");
}

} // namespace
