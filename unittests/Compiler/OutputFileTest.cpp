//===- OutputFileTest.cpp - tests of whole output files ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/OutputFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"

using namespace moec;
namespace fs = llvm::sys::fs;

namespace {

class OutputFile : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_FALSE(fs::createUniqueDirectory("moec-output", folder));
  }
  void TearDown() override { (void)fs::remove_directories(folder); }

  std::string getPath(llvm::StringRef name) const {
    llvm::SmallString<128> path = folder;
    llvm::sys::path::append(path, name);
    return path.str().str();
  }

  int countFiles() const {
    std::error_code error;
    int count = 0;
    for (fs::directory_iterator it(folder, error), end; it != end;
         it.increment(error))
      ++count;
    return count;
  }

  llvm::SmallString<128> folder;
};

} // namespace

TEST_F(OutputFile, ReplacesTheFileAndLeavesNothingBeside) {
  std::string path = getPath("a.mlir");
  for (const char *text : {"a longer text", "short", ""}) {
    ASSERT_TRUE(succeeded(writeOutputFile(path, text)));
    auto file = llvm::MemoryBuffer::getFile(path);
    ASSERT_TRUE(file);
    EXPECT_EQ((*file)->getBuffer(), text);
    EXPECT_EQ(countFiles(), 1);
  }
}

TEST_F(OutputFile, FailsWithoutTrace) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(failed(writeOutputFile("/dev/full/a.mlir", "text")));
  EXPECT_TRUE(failed(writeOutputFile(folder, "text")));
  EXPECT_TRUE(failed(writeOutputFile("/dev/full", "text")));
  std::string messages = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.find("/dev/full/a.mlir: error: cannot be written"),
            std::string::npos);
  EXPECT_NE(messages.find("/dev/full: error: cannot be written"),
            std::string::npos);
  EXPECT_EQ(countFiles(), 0);
}

TEST_F(OutputFile, MakesMissingFolders) {
  std::string path = getPath("new/newer/a.mlir");
  ASSERT_TRUE(succeeded(writeOutputFile(path, "text")));
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(OutputFile, ChecksWithoutATrace) {
  using Kind = OutputCheck::Kind;
  OutputCheck check;
  auto why = [&](llvm::StringRef path, Kind kind) {
    return llvm::toString(check.check("-o", path, kind));
  };
  EXPECT_EQ(why(getPath("new/a.mlir"), Kind::Text), "");
  EXPECT_EQ(why(getPath("new/a.moepkg"), Kind::Binary), "");
  EXPECT_EQ(countFiles(), 0);
  EXPECT_EQ(why("-", Kind::Text), "");
  EXPECT_EQ(why("/dev/null", Kind::Text), "");
  EXPECT_NE(why("/dev/null", Kind::Binary).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(why("", Kind::Binary).find("-o needs a file name"),
            std::string::npos);
  EXPECT_NE(why(folder, Kind::Text).find("is a folder"), std::string::npos);
  ASSERT_TRUE(succeeded(writeOutputFile(getPath("a"), "text")));
  EXPECT_EQ(why(getPath("a"), Kind::Binary), "");
  EXPECT_NE(why(getPath("a/b/c"), Kind::Text).find("is a file, not a folder"),
            std::string::npos);
}

TEST_F(OutputFile, IsNoInputByAnyName) {
  std::string model = getPath("model");
  for (const char *name : {"config.json", "layer.plan.mlir"})
    ASSERT_TRUE(succeeded(writeOutputFile(model + "/" + name, "text")));
  std::string hard = getPath("hard"), soft = getPath("soft");
  ASSERT_FALSE(fs::create_hard_link(model + "/config.json", hard));
  ASSERT_FALSE(fs::create_link(model + "/config.json", soft));
  // A folder counts for all of its files.
  OutputCheck check;
  check.addInput(model);
  for (const std::string &path : {model + "/config.json", hard, soft}) {
    std::string why =
        llvm::toString(check.check("-o", path, OutputCheck::Kind::Text));
    EXPECT_NE(why.find("which would be overwritten"), std::string::npos) << why;
  }
  EXPECT_FALSE(
      check.check("-o", model + "/other.json", OutputCheck::Kind::Text));
  EXPECT_FALSE(check.checkFolder("--dump-dir", model, "none."));
  std::string why =
      llvm::toString(check.checkFolder("--dump-dir", model, "layer."));
  EXPECT_NE(why.find("would overwrite the input"), std::string::npos) << why;
}

/// The folder of a link's target must be writable. An open descriptor may be
/// anything.
TEST_F(OutputFile, ChecksWhereALinkLeads) {
  OutputCheck check;
  auto why = [&](llvm::StringRef path) {
    return llvm::toString(check.check("-o", path, OutputCheck::Kind::Binary));
  };
  ASSERT_FALSE(fs::create_link(getPath("new"), getPath("link")));
  ASSERT_FALSE(fs::create_link("/dev/null/new", getPath("bad")));
  ASSERT_FALSE(fs::create_link("/proc/self/fd/2", getPath("stderr")));
  EXPECT_EQ(why(getPath("link")), "");
  EXPECT_NE(why(getPath("bad")).find("/dev/null is a file, not a folder"),
            std::string::npos)
      << why(getPath("bad"));
  EXPECT_EQ(why(getPath("stderr")), "");
  EXPECT_EQ(why("-"), "");
  EXPECT_EQ(why("/dev/fd/2"), "");

  ASSERT_TRUE(succeeded(writeOutputFile(getPath("link"), "text")));
  EXPECT_TRUE(fs::is_symlink_file(getPath("link")));
  EXPECT_TRUE(fs::is_regular_file(getPath("new")));
}

TEST_F(OutputFile, WritesDevicesInPlace) {
  EXPECT_TRUE(succeeded(writeOutputFile("/dev/null", "text")));
  fs::file_status status;
  ASSERT_FALSE(fs::status("/dev/null", status));
  EXPECT_EQ(status.type(), fs::file_type::character_file);
}
