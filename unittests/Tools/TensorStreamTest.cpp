//===- TensorStreamTest.cpp - weights that come one by one ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Run/TensorStream.h"

#include "PackedCheckpoint.h"

#include <cstring>

using namespace moec;
using namespace moec::testing;

namespace {

class TensorStreams : public ::testing::TestWithParam<const char *> {};

} // namespace

// Experts come one after the other; what is kept beside the layer is the
// tensors of one, and the small ones outside the experts.
TEST_P(TensorStreams, KeepAtMostOneExpert) {
  LayerSpec spec = importPacked(GetParam());
  PackedLayer expected(spec), layer(spec);
  ASSERT_TRUE(expected.load(spec, getPackedWeights(GetParam())));
  auto file = moert::Checkpoint::open(getPackedWeights(GetParam()));
  ASSERT_TRUE(file);
  std::map<std::string, size_t> ofExperts;
  size_t others = 0, most = 0;
  LayerRequest request = makeRequest(spec);
  TensorMemory memory;
  TensorStream stream(layer.tensors, request, memory, "stream");
  for (const auto &[name, number] : file->tensors()) {
    auto entry = file->find(name);
    ASSERT_TRUE(entry);
    auto [before, after] = llvm::StringRef(name).split(".experts.");
    if (after.empty())
      others += (*entry)->bytes;
    else
      ofExperts[after.split('.').first.str()] += (*entry)->bytes;
    moert::Status status = stream.add(**entry);
    ASSERT_TRUE(status) << status.message();
    most = std::max(most, stream.getKeptBytes());
  }
  size_t largest = 0;
  for (const auto &[expert, bytes] : ofExperts)
    largest = std::max(largest, bytes);
  EXPECT_LE(most, largest + others);
  EXPECT_TRUE(stream.isFull());
  PrefixMap prefixes;
  moert::Status status = stream.finish(prefixes);
  ASSERT_TRUE(status) << status.message();
  EXPECT_TRUE(prefixes.count("experts.w13"));
  for (const HostTensor &tensor : layer.tensors)
    EXPECT_EQ(std::memcmp(tensor.data(), expected.find(tensor.name)->data(),
                          tensor.getNumBytes()),
              0)
        << tensor.name;
}

INSTANTIATE_TEST_SUITE_P(Tools, TensorStreams,
                         ::testing::Values("awq-int4", "bnb-nf4-nested",
                                           "ct-int4-zeros", "ct-nvfp4",
                                           "gptq-int4", "modelopt-nvfp4"));

TEST(TensorStream, NamesTheModuleThatComesSecond) {
  LayerSpec spec = importPacked("ct-int8");
  PackedLayer layer(spec);
  LayerRequest request = makeRequest(spec);
  TensorMemory memory;
  TensorStream stream(layer.tensors, request, memory, "stream");
  auto file = moert::Checkpoint::open(getPackedWeights("ct-int8"));
  ASSERT_TRUE(file);
  for (const auto &[name, number] : file->tensors()) {
    if (!llvm::StringRef(name).contains(".experts.0.gate_proj"))
      continue;
    auto entry = file->find(name);
    ASSERT_TRUE(entry);
    moert::SafetensorsEntry other = **entry;
    ASSERT_TRUE(stream.add(other));
    EXPECT_NE(stream.add(other).message().find("is given twice"),
              std::string::npos);
    other.name = "transformer." + name;
    EXPECT_NE(stream.add(other).message().find("has experts under"),
              std::string::npos);
    return;
  }
  FAIL() << "no expert";
}
