//===- DiagnosticsTest.cpp - messages, carets, files ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Diagnostics.h"

#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"

#include <fcntl.h>
#include <unistd.h>

using namespace moec;

namespace {

/// A sink that records diagnostics.
struct Sink {
  std::string text;
  llvm::raw_string_ostream os{text};
  Diagnostics diags{os};
};

TEST(SourceText, LinesAndColumnsStartAtOneAndCountCharacters) {
  SourceText text("f", "ab\nx\xC3\xA9y\r\n\nend");
  auto at = [&](uint32_t offset) {
    LineColumn position = text.getLineColumn(offset);
    return std::make_pair(position.line, position.column);
  };
  EXPECT_EQ(at(0), std::make_pair(1u, 1u));
  EXPECT_EQ(at(2), std::make_pair(1u, 3u));
  EXPECT_EQ(at(3), std::make_pair(2u, 1u));
  // The letter before has two bytes.
  EXPECT_EQ(at(6), std::make_pair(2u, 3u));
  EXPECT_EQ(at(9), std::make_pair(3u, 1u));
  EXPECT_EQ(at(10), std::make_pair(4u, 1u));
  // Offsets beyond the end are clamped.
  EXPECT_EQ(at(1000), std::make_pair(4u, 4u));
}

TEST(Diagnostics, ShowsTheLineAndMarksTheRange) {
  Sink sink;
  SourceText text("m.json", "{\n  \"top_k\": 9,\n}");
  sink.diags.error(text, {4, 11}, "too large");
  EXPECT_EQ(sink.text, "m.json:2:3: error: too large\n"
                       "    \"top_k\": 9,\n"
                       "    ^~~~~~~\n");
  EXPECT_EQ(sink.diags.getNumErrors(), 1u);
}

TEST(Diagnostics, ARangeOverLinesIsMarkedInItsFirst) {
  Sink sink;
  SourceText text("m", "{ [\n1\n] }");
  sink.diags.error(text, {2, 7}, "x");
  EXPECT_EQ(sink.text, "m:1:3: error: x\n  { [\n    ^\n");
}

TEST(Diagnostics, CutsLongLinesAroundTheCaret) {
  Sink sink;
  std::string line(100000, 'a');
  line.replace(50000, 3, "BAD");
  SourceText text("m", line);
  sink.diags.error(text, {50000, 50003}, "x");
  EXPECT_LT(sink.text.size(), 300u);
  std::string expected = "  " + std::string(50, 'a') + "BAD" +
                         std::string(47, 'a') + "\n" + std::string(52, ' ') +
                         "^~~\n";
  EXPECT_EQ(sink.text, "m:1:50001: error: x\n" + expected);
}

TEST(Diagnostics, ShowsNoControlCharacters) {
  Sink sink;
  SourceText text("m", "\x1b[31m\tred");
  sink.diags.error(text, {6, 9}, "x");
  EXPECT_EQ(sink.text, "m:1:7: error: x\n  ?[31m red\n        ^~~\n");
}

TEST(Diagnostics, StopsPrintingAfterManyErrors) {
  Sink sink;
  for (int i = 0; i < 1000; ++i)
    sink.diags.error("f", "x");
  EXPECT_EQ(sink.diags.getNumErrors(), 1000u);
  EXPECT_EQ(llvm::StringRef(sink.text).count('\n'),
            Diagnostics::kMaxErrors + 1);
  EXPECT_TRUE(llvm::StringRef(sink.text).contains("too many errors"));
}

/// A byte that is not UTF-8 is shown as one character, so that the caret is at
/// the right column.
TEST(Diagnostics, ShowsCharactersAlone) {
  Sink sink;
  SourceText text("m", "\xFF\xFE\x80\xC3\xA9 x");
  sink.diags.error(text, {6, 7}, "x");
  EXPECT_TRUE(
      llvm::StringRef(sink.text).ends_with("\n  ???\xC3\xA9 x\n       ^\n"))
      << sink.text;
}

TEST(Quote, CutsAndCleans) {
  EXPECT_EQ(quote("a"), "'a'");
  EXPECT_EQ(quote("a\nb"), "'a?b'");
  EXPECT_EQ(quote(std::string(100, 'x')), "'" + std::string(60, 'x') + "...'");
  // Never splits a character.
  EXPECT_EQ(quote(std::string(59, 'x') + "\xC3\xA9"),
            "'" + std::string(59, 'x') + "...'");
}

TEST(ReadTextFile, NamesTheFileThatCannotBeRead) {
  Sink sink;
  EXPECT_TRUE(failed(readTextFile("/nonexistent/f.json", 10, sink.diags)));
  EXPECT_EQ(sink.text, "/nonexistent/f.json: error: cannot be read: No such "
                       "file or directory\n");
}

TEST(ReadTextFile, RefusesADirectory) {
  Sink sink;
  EXPECT_TRUE(failed(readTextFile("/", 10, sink.diags)));
  EXPECT_EQ(sink.text, "/: error: is a directory, not a regular file\n");
}

TEST(ReadTextFile, BoundsTheSize) {
  Sink sink;
  llvm::SmallString<64> path;
  int fd;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("moec", "txt", fd, path));
  llvm::raw_fd_ostream(fd, /*shouldClose=*/true) << "0123456789";
  auto text = readTextFile(path, 10, sink.diags);
  ASSERT_TRUE(succeeded(text));
  EXPECT_EQ(text->getText(), "0123456789");
  EXPECT_EQ(sink.text, "");
  EXPECT_TRUE(failed(readTextFile(path, 9, sink.diags)));
  EXPECT_TRUE(
      llvm::StringRef(sink.text).contains("has 10 bytes; at most 9 are read"));
  (void)llvm::sys::fs::remove(path);
}

TEST(ReadTextFile, BoundsWhatHasNoSize) {
  Sink sink;
  EXPECT_TRUE(failed(readTextFile("/proc/self/status", 10, sink.diags)));
  EXPECT_TRUE(
      llvm::StringRef(sink.text).contains("has more than the 10 bytes"));
}

/// A link to such a device comes with a git checkout.
TEST(ReadTextFile, RefusesADevice) {
  Sink sink;
  EXPECT_TRUE(failed(readTextFile("/dev/zero", 10, sink.diags)));
  EXPECT_EQ(sink.text, "/dev/zero: error: is a device, not a regular file\n");
}

TEST(ReadTextFile, CountsStandardInput) {
  int before = dup(STDIN_FILENO), endless = open("/dev/zero", O_RDONLY);
  dup2(endless, STDIN_FILENO);
  Sink sink;
  EXPECT_TRUE(failed(readTextFile("-", 1000, sink.diags)));
  EXPECT_EQ(sink.text,
            "-: error: has more than the 1000 bytes that are read\n");
  dup2(before, STDIN_FILENO);
  close(before);
  close(endless);
}

} // namespace
