//===- CommandLineTest.cpp - what a command line may say --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxCommandLine/CommandLine.h"

#include "gtest/gtest.h"

using namespace moec::ptx;

namespace {

/// A tool with an option of each kind.
struct Tool {
  bool lists = false;
  std::string file, kernel;
  std::vector<std::string> maps;
  int64_t grid = 1;
  unsigned seeds = 3;
  CommandLine line{"tool", "the help\n", 2};

  Tool() {
    line.addFile(file);
    line.addFlag("list", lists);
    line.addText("kernel", kernel);
    line.addTexts("map", maps);
    line.addNumber("grid", grid, 1);
    line.addNumber("seeds", seeds, 1, 3);
    line.addValue("pair", [](const std::string &value) {
      return value == "a:b" ? "" : "A:B";
    });
  }

  /// The message of the error; empty if there is none.
  std::string parse(std::vector<const char *> words) {
    words.insert(words.begin(), "tool");
    return line.parse(int(words.size()), words.data()).message();
  }
};

TEST(CommandLineTest, SetsWhatIsGiven) {
  Tool tool;
  EXPECT_EQ(tool.parse({"--list", "a.ptx", "--map=0,x", "--map=1=y",
                        "--grid=0x10", "--kernel=", "--pair=a:b"}),
            "");
  EXPECT_TRUE(tool.lists);
  EXPECT_EQ(tool.file, "a.ptx");
  EXPECT_EQ(tool.kernel, "");
  EXPECT_EQ(tool.maps, (std::vector<std::string>{"0,x", "1=y"}));
  EXPECT_EQ(tool.grid, 16);
  EXPECT_EQ(tool.seeds, 3u);
}

TEST(CommandLineTest, RefusesByName) {
  Tool tool;
  EXPECT_EQ(tool.parse({"--gird=3"}),
            "--gird is not an option; the nearest is --grid; see tool --help");
  EXPECT_EQ(tool.parse({"--frobnicate"}),
            "--frobnicate is not an option; see tool --help");
  EXPECT_EQ(tool.parse({"--list=1"}),
            "--list=1: --list takes no value; see tool --help");
  EXPECT_EQ(tool.parse({"--grid"}),
            "--grid needs a value: write --grid=VALUE; see tool --help");
  EXPECT_EQ(tool.parse({"a.ptx", "b.ptx"}),
            "'b.ptx' is a second file; one is accepted; see tool --help");
  EXPECT_EQ(tool.parse({"--pair=a"}),
            "--pair=a: A:B is accepted; see tool --help");
  CommandLine none("tool", "", 2);
  const char *words[] = {"tool", "a.ptx"};
  EXPECT_EQ(none.parse(2, words).message(),
            "'a.ptx' is not an option; options begin with --; see tool --help");
}

TEST(CommandLineTest, ChecksNumbers) {
  Tool tool;
  for (const char *word :
       {"--grid=", "--grid=x", "--grid=-1", "--grid=0", "--grid= 1",
        "--grid=1.5", "--grid=1k", "--grid=9223372036854775808",
        "--grid=18446744073709551616"})
    EXPECT_EQ(tool.parse({word}),
              std::string(word) +
                  ": a number from 1 on is accepted; see tool --help");
  EXPECT_EQ(tool.parse({"--seeds=4"}),
            "--seeds=4: a number from 1 to 3 is accepted; see tool --help");
  EXPECT_EQ(tool.grid, 1);
  EXPECT_EQ(tool.seeds, 3u);
}

TEST(CommandLineTest, EndsAfterHelpAndErrors) {
  Tool tool;
  const char *words[] = {"tool", "--nothing", "--help"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(tool.line.run(3, words), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "the help\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(tool.line.run(2, words), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tool: error: --nothing is not an option; see tool --help\n");
  EXPECT_EQ(tool.line.run(1, words), std::nullopt);
}

} // namespace
