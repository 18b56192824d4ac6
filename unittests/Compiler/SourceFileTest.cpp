//===- SourceFileTest.cpp - tests of the bounds on IR text ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/SourceFile.h"

#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

using namespace moec;

/// The message of checkIRText() for a text; empty if it is accepted.
static std::string check(llvm::StringRef text) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  bool ok = succeeded(checkIRText(llvm::MemoryBufferRef(text, "t.mlir"), os));
  EXPECT_EQ(ok, messages.empty());
  return messages;
}

static std::string repeat(llvm::StringRef text, int64_t count) {
  std::string result;
  for (int64_t i = 0; i < count; ++i)
    result += text;
  return result;
}

TEST(SourceFile, AcceptsEachBracketUpToTheBound) {
  for (const char *pair : {"()", "[]", "{}", "<>"}) {
    std::string open(kMaxBracketNesting, pair[0]);
    std::string close(kMaxBracketNesting, pair[1]);
    EXPECT_EQ(check(open + close + open + close), "");
    EXPECT_NE(check(open + pair[0] + close + pair[1]), "");
  }
}

TEST(SourceFile, PointsAtTheBracket) {
  EXPECT_EQ(
      check("module {\n " + repeat("[", kMaxBracketNesting)).substr(0, 29),
      "t.mlir:2:257: error: brackets");
}

TEST(SourceFile, KnowsWhatIsNoBracket) {
  int64_t many = 2 * kMaxBracketNesting;
  EXPECT_EQ(check(repeat("\"([{<\\\"\" ", many)), "");
  EXPECT_EQ(check(repeat("// ([{<\n", many)), "");
  EXPECT_EQ(check("// ((("), "");
  EXPECT_EQ(check(repeat("() -> ()\n", many)), "");
  // The arrow closes no bracket, or texts could evade the limit.
  EXPECT_NE(check(repeat("< ->", many)), "");
  // Text with unclosed brackets, strings or comments.
  EXPECT_EQ(check("\"("), "");
  EXPECT_EQ(check("\"\\"), "");
  EXPECT_EQ(check("/"), "");
  EXPECT_EQ(check("#"), "");
  EXPECT_EQ(check("!a ="), "");
}

// MLIR's parser accepts the type and then asks for its width, which ends the
// process.
TEST(SourceFile, RefusesArraysOfIndex) {
  std::string message = "t.mlir:1:6: error: an array of 'index' or of an "
                        "alias is not read; name an integer or float type";
  for (const char *text :
       {"array<index: 1>", "array<index>", "array< index: 1>", "array<!i: 1>"})
    EXPECT_EQ(check(text).substr(0, message.size()), message) << text;
  for (const char *text : {"array // x\n<index: 1>", "array<// x\nindex: 1>"})
    EXPECT_NE(check(text), "") << text;
  for (const char *text :
       {"array<i64: 1>", "\"array<index: 1>\"", "// array<index: 1>",
        "tensor<index>", "my_array<index>", "array, <index>"})
    EXPECT_EQ(check(text), "") << text;
}

TEST(SourceFile, FollowsAliases) {
  auto chain = [](int64_t length) {
    std::string text = "!a0 = i32\n";
    for (int64_t i = 1; i < length; ++i)
      text += "!a" + std::to_string(i) + " = tuple<!a" + std::to_string(i - 1) +
              ">\n";
    return text;
  };
  EXPECT_EQ(check(chain(100)), "");
  EXPECT_NE(check(chain(200)), "");
  // The depth of an alias's definition adds to that of its use.
  EXPECT_EQ(check("#a = " + repeat("[", 200) + repeat("]", 200) + "\n" +
                  repeat("[", 50) + "#a" + repeat("]", 50)),
            "");
  EXPECT_NE(check("#a = " + repeat("[", 200) + repeat("]", 200) + "\n" +
                  repeat("[", 60) + "#a" + repeat("]", 60)),
            "");
  // A definition may begin on the line after its name.
  EXPECT_NE(check("#a =\n  // what\n " + repeat("[", 200) + repeat("]", 200) +
                  "\n" + repeat("[", 60) + "#a"),
            "");
  // Many adjacent aliases do not nest.
  EXPECT_EQ(check("#a = 1 : i32\n" + repeat("#b = [#a]\n", 1000)), "");
}

TEST(SourceFile, BoundsSigns) {
  EXPECT_EQ(check(repeat("- ", kMaxBracketNesting) + "1"), "");
  EXPECT_NE(check(repeat("- ", kMaxBracketNesting + 1) + "1"), "");
  EXPECT_EQ(check(repeat("-1 ", 1000)), "");
}

TEST(SourceFile, RefusesBytecode) {
  EXPECT_EQ(check(llvm::StringRef("ML\xEFR\r\0", 6)),
            "t.mlir: error: is MLIR bytecode; give IR as text\n");
}
