//===- LoadTensorsTest.cpp - tests of LoadTensors ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Run/LoadTensors.h"
#include "TensorTesting.h"

#include "llvm/Support/FileSystem.h"

#include <cstring>

using namespace moec;
using namespace moec::testing;

namespace {

/// A file of f32 tensors whose elements are `first`, `first + 1`, ...
class File {
public:
  void add(const std::string &name, std::vector<int64_t> shape, float first) {
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    values.emplace_back();
    for (int64_t i = 0; i < count; ++i)
      values.back().push_back(first + float(i));
    entries.push_back({name, ElementType::F32, std::move(shape), nullptr, 0});
  }

  /// Adds bf16 of small integers, as files of experts kept elsewhere have.
  void addBF16(const std::string &name, std::vector<int64_t> shape,
               std::vector<uint16_t> bits) {
    halves.push_back(std::move(bits));
    entries.push_back({name, ElementType::BF16, std::move(shape),
                       halves.back().data(), halves.back().size() * 2});
    values.emplace_back();
  }

  moert::Status load(std::vector<HostTensor> &tensors,
                     const std::vector<TensorInfo> &signature,
                     std::vector<int64_t> expertIds) {
    for (size_t i = 0; i < entries.size(); ++i)
      if (!entries[i].data) {
        entries[i].data = values[i].data();
        entries[i].bytes = values[i].size() * sizeof(float);
      }
    llvm::SmallString<128> path;
    if (llvm::sys::fs::createTemporaryFile("moec", "safetensors", path))
      return moert::unavailable("no temporary file");
    moert::Status status = moert::writeSafetensors(path.str().str(), entries);
    EXPECT_TRUE(status) << status.message();
    auto file = moert::Checkpoint::open(path.str().str());
    EXPECT_TRUE(file);
    LayerRequest request = makeRequest(tensors);
    for (TensorInfo &info : request.signature)
      for (const TensorInfo &other : signature)
        if (other.name == info.name)
          info.checkpointForms = other.checkpointForms;
    request.expertIds = expertIds;
    for (int64_t id : expertIds)
      request.numExperts = std::max(request.numExperts, id + 1);
    status = loadTensors(tensors, *file, request);
    (void)llvm::sys::fs::remove(path);
    // Removes the file's path from messages.
    std::string message = status.message();
    if (size_t at = message.find(path.str().str()); at != std::string::npos)
      message.replace(at, path.size(), "t.safetensors");
    return status ? status : moert::invalidArgument(message);
  }

private:
  std::vector<moert::SafetensorsTensor> entries;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<uint16_t>> halves;
};

std::vector<float> getValues(const HostTensor &tensor) {
  std::vector<float> values(tensor.getNumElements());
  std::memcpy(values.data(), tensor.data(), tensor.getNumBytes());
  return values;
}

/// Signature of `w` with one checkpoint form.
std::vector<TensorInfo> makeSignature(const std::string &name,
                                      CheckpointForm form) {
  TensorInfo info;
  info.name = name;
  info.checkpointForms = {std::move(form)};
  return {info};
}

} // namespace

TEST(LoadTensors, CanonicalNameComesFirst) {
  auto tensors =
      makeTensors({{"experts.w2", Role::Weight, ElementType::F32, {1, 2, 2}}});
  File file;
  file.add("experts.w2", {2, 2}, 1);
  ASSERT_TRUE(file.load(tensors, {}, {0}));
  EXPECT_EQ(getValues(tensors[0]), (std::vector<float>{1, 2, 3, 4}));
}

TEST(LoadTensors, PutsGateAndUpTogether) {
  // Experts 5 and 3 in this order; gate rows before up rows.
  auto tensors =
      makeTensors({{"experts.w13", Role::Weight, ElementType::F32, {2, 4, 2}}});
  auto signature = makeSignature(
      "experts.w13", {{"experts.{e}.gate_proj.weight", 0, 1, 2, false},
                      {"experts.{e}.up_proj.weight", 2, 1, 2, false}});
  File file;
  file.add("a.b.experts.3.gate_proj.weight", {2, 2}, 10);
  file.add("a.b.experts.3.up_proj.weight", {2, 2}, 20);
  file.add("a.b.experts.5.gate_proj.weight", {2, 2}, 30);
  file.add("a.b.experts.5.up_proj.weight", {2, 2}, 40);
  file.add("a.c.q_proj.weight", {2, 2}, 50);
  moert::Status status = file.load(tensors, signature, {5, 3});
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(getValues(tensors[0]),
            (std::vector<float>{30, 31, 32, 33, 40, 41, 42, 43, //
                                10, 11, 12, 13, 20, 21, 22, 23}));
}

// field-bug: vllm#41769
// parity: L37
TEST(LoadTensors, TakesTheLargestScaleOfAnInput) {
  CheckpointPart gate{"experts.{e}.w1.input_scale", 0, 1, 1},
      up{"experts.{e}.w3.input_scale", 0, 1, 1};
  gate.use = up.use = PartUse::LargestScale;
  auto tensors = makeTensors(
      {{"experts.w13_input_scale", Role::Weight, ElementType::F32, {1}}});
  auto load = [&](float up0) {
    File file;
    file.add("a.experts.0.w1.input_scale", {}, 9);
    file.add("a.experts.0.w3.input_scale", {1}, up0);
    file.add("a.experts.1.w1.input_scale", {}, 4);
    file.addBF16("a.experts.1.w3.input_scale", {1, 1}, {0x4080});
    tensors[0].isGiven = false;
    return file.load(
        tensors, makeSignature("experts.w13_input_scale", {gate, up}), {0, 1});
  };
  for (float up0 : {9.0F, 9.00005F}) {
    moert::Status status = load(up0);
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(getValues(tensors[0]), (std::vector<float>{up0}));
  }
  // Both matrices of an expert have the same input.
  EXPECT_EQ(load(9.0002F).message(),
            "t.safetensors: tensors 'a.experts.0.w1.input_scale' and "
            "'a.experts.0.w3.input_scale' are 9.000000 and 9.000200; gate and "
            "up of an expert share their input, so their input scales must "
            "agree within a relative error of 1e-5");
}

// field-bug: tpu-inference#2405
TEST(LoadTensors, InterleavesRows) {
  auto tensors = makeTensors(
      {{"shared_experts.w13", Role::Weight, ElementType::F32, {4, 2}}});
  auto signature =
      makeSignature("shared_experts.w13", {{"shared.gate", 0, 2, 2, false},
                                           {"shared.up", 1, 2, 2, false}});
  File file;
  file.add("shared.gate", {2, 2}, 10);
  file.add("shared.up", {2, 2}, 20);
  ASSERT_TRUE(file.load(tensors, signature, {0}));
  EXPECT_EQ(getValues(tensors[0]),
            (std::vector<float>{10, 11, 20, 21, 12, 13, 22, 23}));
}

// field-bug: transformers#47031, Megatron-Bridge#3743, mlx-lm#679
TEST(LoadTensors, TransposesEveryExpert) {
  // Larger than the square tiles of the copy.
  constexpr int64_t rows = 70, columns = 45;
  auto tensors = makeTensors(
      {{"experts.w2", Role::Weight, ElementType::F32, {2, rows, columns}}});
  auto signature =
      makeSignature("experts.w2", {{"experts.down_proj", 0, 1, rows, true}});
  File file;
  file.add("mlp.experts.down_proj", {2, columns, rows}, 0);
  moert::Status status = file.load(tensors, signature, {0, 1});
  ASSERT_TRUE(status) << status.message();
  std::vector<float> values = getValues(tensors[0]);
  for (int64_t e = 0; e < 2; ++e)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(values[(e * rows + r) * columns + c],
                  float((e * columns + c) * rows + r));
}

// field-bug: Automodel#2553, Automodel#3650, vllm#50761, sglang#31213
// field-bug: sglang#37133, Automodel#3818, Automodel#3674, sglang-jax#1665
TEST(LoadTensors, WidensAndSaysWhatItDoesNot) {
  auto tensors =
      makeTensors({{"gate.bias", Role::Weight, ElementType::F32, {2}}});
  File file;
  file.addBF16("gate.bias", {2}, {0x3F80, 0xC000});
  ASSERT_TRUE(file.load(tensors, {}, {}));
  EXPECT_EQ(getValues(tensors[0]), (std::vector<float>{1, -2}));

  auto narrow =
      makeTensors({{"gate.bias", Role::Weight, ElementType::BF16, {2}}});
  File wide;
  wide.add("gate.bias", {2}, 0);
  ASSERT_TRUE(wide.load(narrow, {}, {}));
  uint16_t bits[2];
  std::memcpy(bits, narrow[0].data(), sizeof(bits));
  EXPECT_EQ(bits[0], 0);
  EXPECT_EQ(bits[1], 0x3F80);

  // 256 is a value of bf16, 257 is not.
  narrow = makeTensors({{"gate.bias", Role::Weight, ElementType::BF16, {2}}});
  File inexact;
  inexact.add("gate.bias", {2}, 256);
  EXPECT_EQ(
      inexact.load(narrow, {}, {}).message(),
      "t.safetensors: tensor 'gate.bias': is f32 and the layer's "
      "'gate.bias' bf16, which has no value 257 (element 1); round weights "
      "by --round-weights, or compile the layer in f32 (the "
      "configuration's torch_dtype)");

  auto integers =
      makeTensors({{"gate.bias", Role::Weight, ElementType::I32, {2}}});
  File floats;
  floats.add("gate.bias", {2}, 0);
  EXPECT_EQ(floats.load(integers, {}, {}).message(),
            "t.safetensors: tensor 'gate.bias': dtype is f32, expected i32");
}

// field-bug: vllm#47874, vllm#47058, transformers#44230, sglang#18965
// field-bug: reap-mlx#80, reap-mlx#107, llm-compressor#2864, sglang#10440
TEST(LoadTensors, NamesWhatIsMissing) {
  auto signature =
      makeSignature("experts.w2", {{"experts.{e}.w2.weight", 0, 1, 2, false}});
  auto load = [&](File &file) {
    auto tensors = makeTensors(
        {{"experts.w2", Role::Weight, ElementType::F32, {2, 2, 2}}});
    return file.load(tensors, signature, {0, 1}).message();
  };
  File none;
  none.add("other", {1}, 0);
  EXPECT_EQ(load(none), "t.safetensors: no tensor for 'experts.w2'; accepted "
                        "names: 'experts.w2', '*.experts.{e}.w2.weight'");
  File half;
  half.add("m.experts.0.w2.weight", {2, 2}, 0);
  EXPECT_EQ(load(half), "t.safetensors: no tensor 'm.experts.1.w2.weight' for "
                        "'experts.w2'");
  File shape;
  shape.add("m.experts.0.w2.weight", {2, 3}, 0);
  shape.add("m.experts.1.w2.weight", {2, 2}, 0);
  EXPECT_EQ(load(shape), "t.safetensors: tensor 'm.experts.0.w2.weight': shape "
                         "is [2, 3], expected [2, 2]");
  File two;
  two.add("m.experts.0.w2.weight", {2, 2}, 0);
  two.add("n.experts.0.w2.weight", {2, 2}, 0);
  EXPECT_EQ(load(two), "t.safetensors: the experts could be those of 'm.' or "
                       "of 'n.'; give a file with the tensors of one");
}

// field-bug: llm-compressor#2939
TEST(LoadTensors, LeavesNoWeightOutInSilence) {
  auto load = [](const std::string &extra, const std::string &input) {
    auto tensors = makeTensors({{input, Role::Input, ElementType::F32, {1}},
                                {"w", Role::Weight, ElementType::F32, {1}}});
    File file;
    file.add(input, {1}, 0);
    file.add("m.w", {1}, 0);
    file.add(extra, {1}, 0);
    auto signature = makeSignature("w", {{"w", 0, 1, 1, false}});
    return file.load(tensors, signature, {0});
  };
  EXPECT_FALSE(load("m.bias", "hidden_states"));
  EXPECT_FALSE(load("experts.w13", "hidden_states"));
  EXPECT_FALSE(load("m.gate.weight", "hidden_states"));
  // Tensors of other modules, and a router whose output is given.
  EXPECT_TRUE(load("n.bias", "hidden_states"));
  EXPECT_TRUE(load("m.gate.weight", "router_logits"));
}

TEST(LoadTensors, LeavesWhatIsGiven) {
  auto tensors =
      makeTensors({{"num_valid_tokens", Role::Input, ElementType::F32, {1}},
                   {"w", Role::Weight, ElementType::F32, {1}}});
  tensors[0].isGiven = true;
  *reinterpret_cast<float *>(tensors[0].data()) = 7;
  File file;
  file.add("num_valid_tokens", {1}, 0);
  file.add("w", {1}, 3);
  ASSERT_TRUE(file.load(tensors, {}, {}));
  EXPECT_EQ(getValues(tensors[0])[0], 7);
  EXPECT_EQ(getValues(tensors[1])[0], 3);
}
