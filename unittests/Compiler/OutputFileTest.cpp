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
  EXPECT_TRUE(failed(writeOutputFile(getPath("none/a.mlir"), "text")));
  EXPECT_TRUE(failed(writeOutputFile(folder, "text")));
  EXPECT_TRUE(failed(writeOutputFile("/dev/full", "text")));
  std::string messages = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.find("none/a.mlir: error: cannot be written"),
            std::string::npos);
  EXPECT_NE(messages.find("/dev/full: error: cannot be written"),
            std::string::npos);
  EXPECT_EQ(countFiles(), 0);
}

TEST_F(OutputFile, WritesDevicesInPlace) {
  EXPECT_TRUE(succeeded(writeOutputFile("/dev/null", "text")));
  fs::file_status status;
  ASSERT_FALSE(fs::status("/dev/null", status));
  EXPECT_EQ(status.type(), fs::file_type::character_file);
}
