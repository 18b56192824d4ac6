//===- SafetensorsTest.cpp - tests of reading safetensors files -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

using namespace moert;

/// A file with this header, and data bytes 0, 1, 2, ...
static std::string fileOf(const std::string &header, size_t dataBytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i)
    file[i] = static_cast<char>(header.size() >> (8 * i));
  file += header;
  for (size_t i = 0; i < dataBytes; ++i)
    file += static_cast<char>(i);
  return file;
}

/// Parses a copy of exactly this size, so that a sanitizer sees every read
/// beyond it.
static Result<SafetensorsFile> parse(const std::string &file) {
  std::unique_ptr<char[]> copy(new char[file.size()]);
  memcpy(copy.get(), file.data(), file.size());
  return SafetensorsFile::fromMemory(copy.get(), file.size(), "f.safetensors");
}

static std::string errorOf(const std::string &header, size_t dataBytes) {
  Result<SafetensorsFile> file = parse(fileOf(header, dataBytes));
  EXPECT_FALSE(file) << header;
  return file ? "" : file.status().message();
}

static const char *const kGoodHeader =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("empty":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},)"
    R"("scalar":{"shape":[],"data_offsets":[20,28],"dtype":"I64"},)"
    R"("small":{"dtype":"F4","shape":[2,2],"data_offsets":[28,30]}}  )";

static std::string temporaryPath(const std::string &name) {
  return ::testing::TempDir() + "moert_" + name;
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  std::string text = fileOf(kGoodHeader, 30);
  Result<SafetensorsFile> file =
      SafetensorsFile::fromMemory(text.data(), text.size(), "f");
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  std::vector<std::string> names;
  for (const SafetensorsEntry &entry : file->entries())
    names.push_back(entry.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"a", "empty", "b", "scalar", "small"}));
  const SafetensorsEntry *b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::BF16);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->bytes, 12u);
  EXPECT_EQ(b->data[0], 8);
  EXPECT_EQ(file->find("small")->bytes, 2u);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(SafetensorsTest, AcceptsFilesWithoutTensors) {
  EXPECT_TRUE(parse(fileOf("{}", 0)));
  EXPECT_TRUE(parse(fileOf(R"({"__metadata__":{}})", 0)));
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  std::string whole = fileOf(kGoodHeader, 30);
  ASSERT_TRUE(parse(whole));
  std::string path = temporaryPath("truncated.safetensors");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::string part = whole.substr(0, bytes);
    EXPECT_FALSE(parse(part)) << bytes;
    std::ofstream(path, std::ios::binary) << part;
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    ASSERT_FALSE(file) << bytes;
    EXPECT_EQ(file.status().message().rfind(path + ": ", 0), 0u);
  }
  EXPECT_FALSE(parse(whole + "x"));
  remove(path.c_str());
}

TEST(SafetensorsTest, RandomCorruptionNeverCrashes) {
  std::string whole = fileOf(kGoodHeader, 30);
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string broken = whole;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
      broken[random() % whole.size()] = static_cast<char>(random());
    Result<SafetensorsFile> file = parse(broken);
    if (!file)
      continue;
    for (const SafetensorsEntry &entry : file->entries())
      ASSERT_LE(entry.bytes, 30u);
  }
}

TEST(SafetensorsTest, HeaderLengthIsBounded) {
  std::string huge = fileOf("{}", 0);
  huge[7] = '\x7f';
  EXPECT_NE(
      parse(huge).status().message().find("exceeds the format's 100000000"),
      std::string::npos);
  std::string beyond = fileOf("{}", 0);
  beyond[0] = 3;
  EXPECT_EQ(parse(beyond).status().message(),
            "f.safetensors: header length 3 exceeds the 2 bytes that follow; "
            "the file is truncated");
  EXPECT_NE(parse("1234567").status().message().find("the file has 7 bytes"),
            std::string::npos);
}

TEST(SafetensorsTest, DeepNestingIsNoTrouble) {
  for (const char *bracket : {"[", "{\"a\":", "{\"a\":["}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i)
      deep += bracket;
    EXPECT_FALSE(parse(fileOf(deep, 0)));
  }
  EXPECT_EQ(errorOf(R"({"a":{"shape":)" + std::string(100000, '['), 0),
            "f.safetensors: tensor 'a': an integer expected, an array found");
}

TEST(SafetensorsTest, ErrorsNameFileAndField) {
  auto tensor = [](const std::string &fields) {
    return "{\"a\":{" + fields + "}}";
  };
  struct Case {
    std::string header;
    size_t dataBytes;
    const char *message;
  } cases[] = {
      {"", 0, "header: byte 0: The document is empty."},
      {"[]", 0, "header: an object of tensors expected, an array found"},
      {"{\"a\"", 0, "header: byte 4: Missing a colon"},
      {"{} x", 0, "header: byte 3: The document root must not be followed"},
      {std::string("{}\0junk", 7), 0, "header: byte 2 is zero"},
      {"{\"\xff\":1}", 0, "header: byte 2: Invalid encoding"},
      {std::string("{\0}\0", 4), 0, "header: not JSON: the text is UTF-16"},
      {"{\"a\":3}", 0,
       "tensor 'a': an object with dtype, shape and data_offsets expected, an "
       "integer found"},
      {"{\"a\":null}", 0, "null found"},
      {"{\"__metadata__\":{\"k\":1}}", 0,
       "__metadata__: a string expected, an integer found"},
      {"{\"__metadata__\":[]}", 0,
       "__metadata__: an object of strings expected, an array found"},
      {tensor(R"("dtype":"F31","shape":[],"data_offsets":[0,4])"), 4,
       "tensor 'a': dtype 'F31' is not supported; F64, F32, BF16,"},
      {tensor(R"("dtype":1,"shape":[],"data_offsets":[0,4])"), 4,
       "tensor 'a': a string for 'dtype' expected, an integer found"},
      {tensor(R"("shape":[],"data_offsets":[0,4])"), 4,
       "tensor 'a': the field 'dtype' is missing"},
      {tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4,
       "tensor 'a': the field 'shape' is missing"},
      {tensor(R"("dtype":"F32","shape":[])"), 0,
       "tensor 'a': the field 'data_offsets' is missing"},
      {tensor(R"("dtype":"F32","dtype":"F32")"), 0,
       "tensor 'a': the field 'dtype' occurs twice"},
      {tensor(R"("strides":[1])"), 0,
       "tensor 'a': the field 'strides' is unknown; dtype, shape and"},
      {tensor(R"("dtype":"F32","shape":4,"data_offsets":[0,4])"), 4,
       "tensor 'a': an array for 'shape' expected, an integer found"},
      {tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4,
       "tensor 'a': an integer expected, a fraction found"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4,
       "tensor 'a': shape holds -1; integers >= 0"},
      {tensor(R"("dtype":"F32","shape":[18446744073709551615])"), 4,
       "an integer beyond 64 bits found"},
      {tensor(R"("dtype":"F32","shape":[99999999999999999999])"), 4,
       "a fraction found"},
      {tensor(R"("dtype":"F32","shape":["1"])"), 4,
       "an integer expected, a string found"},
      {tensor(R"("dtype":"F32","shape":[4611686018427387904,16],)"
              R"("data_offsets":[0,4])"),
       4, "tensor 'a': shape [4611686018427387904, 16] has more bytes than"},
      {tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2,
       "tensor 'a': shape [3] of f4e2m1 does not fill whole bytes"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4,
       "tensor 'a': data_offsets has 1 elements; 2 are expected"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4,
       "tensor 'a': data_offsets has 3 elements; 2 are expected"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":{})"), 4,
       "tensor 'a': an array for 'data_offsets' expected, an object found"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4,
       "tensor 'a': data_offsets [4, 0] end before they begin"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4,
       "tensor 'a': data_offsets [0, 8] exceed the 4 bytes of data; the file "
       "is truncated"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8,
       "tensor 'a': data_offsets [4, 8] leave a hole before them; 0 is"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
       "tensor 'a': data_offsets [0, 4] hold 4 bytes, f32 of shape [2] needs "
       "8"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 6,
       "the tensors cover 4 of 6 bytes of data"},
      {R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})",
       6, "tensor 'b': data_offsets [2, 6] overlap another tensor; 4 is"},
      {R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},)"
       R"("a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
       0, "tensor 'a': the name occurs twice"},
  };
  for (const Case &c : cases) {
    std::string message = errorOf(c.header, c.dataBytes);
    EXPECT_EQ(message.rfind("f.safetensors: ", 0), 0u) << message;
    EXPECT_NE(message.find(c.message), std::string::npos)
        << c.message << "\n  found: " << message;
  }
}

TEST(SafetensorsTest, OpensFilesOnly) {
  Result<SafetensorsFile> missing =
      SafetensorsFile::open(temporaryPath("no_such_file"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), StatusCode::NotFound);
  EXPECT_NE(missing.status().message().find("No such file"), std::string::npos);
  EXPECT_FALSE(SafetensorsFile::open(::testing::TempDir()));
  EXPECT_FALSE(SafetensorsFile::open("/dev/null"));
}
