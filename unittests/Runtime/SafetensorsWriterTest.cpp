//===- SafetensorsWriterTest.cpp - tests of the writer ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Safetensors.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

using namespace moert;

namespace {

/// An empty temporary folder.
class SafetensorsWriterTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "moert_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory = pattern + "/";
  }

  void TearDown() override {
    for (const std::string &name : list())
      remove((directory + name).c_str());
    rmdir(directory.c_str());
  }

  std::vector<std::string> list() {
    std::vector<std::string> names;
    DIR *stream = opendir(directory.c_str());
    while (dirent *entry = readdir(stream))
      if (entry->d_name[0] != '.')
        names.push_back(entry->d_name);
    closedir(stream);
    return names;
  }

  static std::string contents(const std::string &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  SafetensorsTensor floats(const std::string &name) {
    return {name, DType::F32, {2, 3}, values, sizeof(values)};
  }

  std::string directory;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  const uint16_t halves[3] = {7, 8, 9};
};

} // namespace

TEST_F(SafetensorsWriterTest, RoundTrips) {
  std::string path = directory + "out.safetensors";
  std::vector<SafetensorsTensor> tensors = {
      {"half", DType::BF16, {3}, halves, sizeof(halves)},
      floats("experts.w13"),
      {"none", DType::I32, {0, 5}, nullptr, 0},
      {"quote\"\n\xc3\xa9", DType::F32, {}, values + 1, 4},
  };
  ASSERT_TRUE(writeSafetensors(path, tensors, {{"format", "pt"}}));
  EXPECT_EQ(list(), std::vector<std::string>{"out.safetensors"});
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->entries().size(), 4u);
  for (const SafetensorsTensor &tensor : tensors) {
    const SafetensorsEntry *entry = file->find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    ASSERT_EQ(entry->bytes, tensor.bytes);
    if (tensor.bytes > 0)
      EXPECT_EQ(memcmp(entry->data, tensor.data, tensor.bytes), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry->data) %
                  dtypeAlignment(tensor.dtype),
              0u);
  }
}

TEST_F(SafetensorsWriterTest, BytesDoNotDependOnTheOrder) {
  std::string a = directory + "a", b = directory + "b";
  SafetensorsTensor half = {"half", DType::BF16, {3}, halves, sizeof(halves)};
  ASSERT_TRUE(writeSafetensors(a, {half, floats("x"), floats("w")}));
  ASSERT_TRUE(writeSafetensors(b, {floats("w"), floats("x"), half}));
  EXPECT_EQ(contents(a), contents(b));
  ASSERT_TRUE(writeSafetensors(a, {}));
  EXPECT_TRUE(SafetensorsFile::open(a));
}

TEST_F(SafetensorsWriterTest, RefusesBadTensorsAndWritesNothing) {
  std::string path = directory + "out";
  auto message = [&](std::vector<SafetensorsTensor> tensors) {
    Status status = writeSafetensors(path, tensors);
    EXPECT_FALSE(status);
    EXPECT_EQ(status.message().rfind(path + ": ", 0), 0u);
    return status.message().substr(
        std::min(path.size() + 2, status.message().size()));
  };
  EXPECT_EQ(message({floats("")}), "tensor '': not a name for a tensor");
  EXPECT_EQ(message({floats("__metadata__")}),
            "tensor '__metadata__': not a name for a tensor");
  EXPECT_EQ(message({floats("a"), floats("a")}), "tensor 'a': given twice");
  EXPECT_EQ(message({{"a", DType::F32, {5}, values, 24}}),
            "tensor 'a': 24 bytes given, f32 of shape [5] has 20");
  EXPECT_EQ(message({{"a", DType::F32, {-1}, values, 24}}),
            "tensor 'a': shape [-1] has a negative size");
  EXPECT_EQ(message({{"a", DType::F32, {6}, nullptr, 24}}),
            "tensor 'a': the data pointer is null");
  EXPECT_TRUE(list().empty());
}

TEST_F(SafetensorsWriterTest, FailuresLeaveTheOldFileAlone) {
  std::string path = directory + "out";
  ASSERT_TRUE(writeSafetensors(path, {floats("a")}));
  std::string before = contents(path);
  EXPECT_FALSE(writeSafetensors(path, {floats("")}));
  EXPECT_EQ(contents(path), before);

  Status missing = writeSafetensors(directory + "no/out", {floats("a")});
  EXPECT_NE(missing.message().find("cannot be written: No such file"),
            std::string::npos)
      << missing.message();
  // Devices and directories are not replaced.
  EXPECT_FALSE(writeSafetensors("/dev/null", {floats("a")}));
  EXPECT_FALSE(writeSafetensors(directory, {floats("a")}));
  EXPECT_EQ(list(), std::vector<std::string>{"out"});
}

TEST_F(SafetensorsWriterTest, InterruptedWritesLeaveNoPartialFile) {
  // A limit on the file size emulates a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = writeSafetensors(directory + "out", {floats("a")});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(status.message().find("cannot be written: File too large"),
            std::string::npos)
      << status.message();
  EXPECT_TRUE(list().empty());
}
