//===- GgufTest.cpp - tests of reading GGUF files ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Gguf.h"

#include "GgufWriter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

using namespace moert;
using gguf::begin;
using gguf::Writer;

namespace {

/// Reads a copy of exactly this size, so that a sanitizer sees every read
/// beyond it.
std::string errorOf(const std::string &file) {
  std::unique_ptr<char[]> copy(new char[file.size()]);
  memcpy(copy.get(), file.data(), file.size());
  Result<SafetensorsFile> read = readGguf(copy.get(), file.size(), "m.gguf");
  return read ? "" : read.status().message();
}

/// Keys of all kinds, and tensors of f32, bf16 and blocks.
std::string makeGood() {
  Writer writer = begin(3, 6);
  writer.string("general.architecture").number(uint32_t(8)).string("llama");
  writer.string("llama.expert_count").number(uint32_t(4)).number(uint32_t(8));
  writer.string("epsilon").number(uint32_t(6)).number(0.5F);
  writer.string("yes").number(uint32_t(7)).number(uint8_t(1));
  writer.string("tokens").number(uint32_t(9)).number(uint32_t(8));
  writer.number(uint64_t(2)).string("a").string("bc");
  writer.string("ids").number(uint32_t(9)).number(uint32_t(2));
  writer.number(uint64_t(3)).number(uint16_t(1)).number(uint32_t(0));
  writer.tensor("blocks", {64, 3, 2}, 8, 64);
  writer.tensor("plain", {3, 2}, 0, 0);
  writer.tensor("half", {5}, 30, 480);
  return writer.data(490);
}

} // namespace

TEST(GgufTest, ReadsTensorsAndMetadata) {
  std::string text = makeGood();
  Result<SafetensorsFile> file = readGguf(text.data(), text.size(), "f");
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(file->metadata().at("general.architecture"), "llama");
  EXPECT_EQ(file->metadata().at("llama.expert_count"), "8");
  EXPECT_EQ(file->metadata().at("epsilon"), "0.5");
  // Arrays of numbers are kept, arrays of strings are not.
  EXPECT_EQ(file->metadata().at("ids"), "[1,0,0]");
  EXPECT_EQ(file->metadata().at("tokens"), "");
  EXPECT_EQ(file->metadata().at("yes"), "true");
  ASSERT_EQ(file->entries().size(), 3U);
  const SafetensorsEntry *blocks = file->find("blocks");
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->blockType, "q8_0");
  EXPECT_EQ(blocks->dtype, DType::U8);
  // Two blocks of 34 bytes in a row of 64 elements.
  EXPECT_EQ(blocks->shape, (std::vector<int64_t>{2, 3, 68}));
  EXPECT_EQ(blocks->bytes, 408U);
  EXPECT_EQ(blocks->data[0], 64);
  const SafetensorsEntry *plain = file->find("plain");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->blockType, "");
  EXPECT_EQ(plain->dtype, DType::F32);
  EXPECT_EQ(plain->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(plain->data[5], 5);
  EXPECT_EQ(file->find("half")->dtype, DType::BF16);
  EXPECT_EQ(file->find("half")->data[0], uint8_t(480 % 256));
  EXPECT_EQ(file->find("other"), nullptr);
}

// field-bug: TheTom/llama-cpp-turboquant#45
TEST(GgufTest, NamesWhatIsWrong) {
  auto tensor = [](const std::vector<uint64_t> &sizes, uint32_t type,
                   uint64_t offset) {
    return begin(1, 0).tensor("t", sizes, type, offset).data(256);
  };
  auto key = [](uint32_t type) { return begin(0, 1).string("k").number(type); };
  struct Case {
    std::string file, message;
  } cases[] = {
      {"", "does not begin with 'GGUF'"},
      {"GGU", "does not begin with 'GGUF'"},
      {begin(0, 0, 1).text, "is of version 1; versions 2 and 3"},
      // Big endian.
      {begin(0, 0, 0x03000000).text, "is of version 50331648"},
      {key(13).text, "key 'k' is of type 13; the types are 0 to 12"},
      {key(4).text, "the value of key 'k' needs 4 bytes and the file has 0"},
      {key(8).number(uint64_t(1) << 60).text, "needs 1152921504606846976"},
      {key(9).number(uint32_t(9)).number(uint64_t(1)).text,
       "key 'k' is an array of arrays"},
      {key(9).number(uint32_t(12)).number(uint64_t(1) << 61).text,
       "the array of key 'k' needs"},
      {begin(0, 2)
           .string("k")
           .number(uint32_t(0))
           .number(uint8_t(1))
           .string("k")
           .number(uint32_t(0))
           .number(uint8_t(1))
           .text,
       "key 'k' is there twice"},
      {begin(0, 1)
           .string("general.alignment")
           .number(uint32_t(4))
           .number(uint32_t(12))
           .text,
       "'general.alignment' is 12; a multiple of 8 is accepted"},
      {tensor({1, 1, 1, 1, 1}, 0, 0), "tensor 't' has 5 dimensions"},
      {tensor({4, 0}, 0, 0), "tensor 't' has a dimension of 0"},
      {tensor({uint64_t(1) << 40, uint64_t(1) << 40}, 0, 0),
       "tensor 't' has a dimension of 1099511627776"},
      {tensor({32}, 9999, 0),
       "tensor 't' is of type 9999, which is not a known type of ggml"},
      {tensor({33, 2}, 8, 0), "tensor 't' of q8_0 has rows of [2, 33], which "
                              "are not multiples of its blocks of 32"},
      {tensor({8}, 0, 8),
       "tensor 't' begins at 8, which is not a multiple of 32"},
      {tensor({64}, 0, 32),
       "tensor 't' has 256 bytes from 32 on, and the file 256 of data; it is "
       "truncated"},
      {tensor({8}, 0, uint64_t(1) << 63), "it is truncated"},
      {begin(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(64),
       "tensor 't' is there twice"},
      {begin(2, 0).tensor("t", {9}, 0, 0).tensor("u", {8}, 0, 32).data(64),
       "tensor 'u' overlaps tensor 't'"},
      {begin(uint64_t(1) << 60, 0).text, "the length of the name of tensor 0"},
  };
  for (const Case &bad : cases) {
    std::string message = errorOf(bad.file);
    EXPECT_EQ(message.rfind("m.gguf: ", 0), 0U) << message;
    EXPECT_NE(message.find(bad.message), std::string::npos)
        << message << "\nexpected: " << bad.message;
  }
}

/// A file truncated anywhere is refused.
TEST(GgufTest, RefusesWhatIsCutOff) {
  std::string good = makeGood();
  ASSERT_EQ(errorOf(good), "");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(errorOf(good.substr(0, size)), "") << size;
}

/// If a mutated file is accepted, all of its data can be read.
// field-bug: llama.cpp#14595, llama.cpp#15711, llama.cpp#18674, gguf-tools#25
TEST(GgufTest, MutantsAreReadOrRefused) {
  std::string good = makeGood();
  std::mt19937 random(1);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits)
      file[random() % 420] = char(random() % 4 ? random() % 12 : random());
    Result<SafetensorsFile> read = readGguf(file.data(), file.size(), "m");
    if (!read)
      continue;
    ++accepted;
    const auto *begin = reinterpret_cast<const uint8_t *>(file.data());
    for (const SafetensorsEntry &entry : read->entries()) {
      ASSERT_GE(entry.data, begin);
      ASSERT_LE(entry.data + entry.bytes, begin + file.size());
    }
  }
  EXPECT_GT(accepted, 100);
}
