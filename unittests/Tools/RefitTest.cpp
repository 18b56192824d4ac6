//===- RefitTest.cpp - weights that are updated in place --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A trainer overwrites the weights of a layer that has prepared copies of them.
// The layer then computes the bits of one that got these weights first, on
// each simulated target, and an update that is refused leaves everything as it
// was. python/tests/test_given_weights.py has the same for the CPU.
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/CApi.h"
#include "../Runtime/StatusTesting.h"
#include "moec/PtxSim/SimDevice.h"
#include "moejit/moejit.h"
#include "moert/HostDevice.h"
#include "gtest/gtest.h"

#include <cstring>
#include <map>

using moert::test::take;

namespace {

constexpr int64_t kTokens = 4, kHidden = 128;

std::string makeSpec(const std::string &quantization) {
  return R"({"moec_spec": 1, "dtype": "bf16", "entry": "ids",
"hidden_size": 128, "num_experts": 2, "top_k": 1, "intermediate_size": 128,
"max_tokens": 4, "activation": {"kind": "silu"})" +
         (quantization.empty() ? "" : ", \"quantization\": " + quantization) +
         "}";
}

struct HostWeight {
  moert::DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};
using HostWeights = std::map<std::string, HostWeight>;

class TestLayer {
public:
  explicit TestLayer(const std::string &architecture) {
    if (architecture == "cpu") {
      EXPECT_EQ(take(moejit_device_create_host(1, &device)), "");
      return;
    }
    moec::ptx::SimDeviceOptions options;
    options.architecture = architecture;
    auto made = moec::ptx::createSimDevice(options);
    EXPECT_TRUE(made);
    device = new moert_device;
    device->device = std::move(*made);
  }
  ~TestLayer() {
    moert_layer_free(layer);
    moejit_compiler_free(compiler);
    moert_device_free(device);
  }
  TestLayer(const TestLayer &) = delete;

  void compile(const std::string &text) {
    moejit_options options = {};
    options.size = sizeof(options);
    options.no_cache = options.no_ptxas = 1;
    moejit_source source = {};
    source.size = sizeof(source);
    source.path = "layer.json";
    source.text = text.c_str();
    source.text_bytes = text.size();
    ASSERT_DONE(moejit_compiler_create(&options, &compiler));
    ASSERT_DONE(
        moejit_load_layer(compiler, &source, device, nullptr, &layer, nullptr));
    std::vector<uint16_t> hidden(kTokens * kHidden);
    for (size_t i = 0; i < hidden.size(); ++i)
      hidden[i] = uint16_t(0x3F00 + i * 7 % 0x90 + (i % 3 ? 0x8000 : 0));
    const int32_t ids[] = {0, 1, 1, 0};
    const float weights[] = {0.5F, 1, 0.25F, 2};
    bind("hidden_states", "bf16", hidden.data(), hidden.size() * 2, kHidden);
    bind("topk_ids", "i32", ids, sizeof(ids), 1);
    bind("topk_weights", "f32", weights, sizeof(weights), 1);
    output = bind("output", "bf16", hidden.data(), hidden.size() * 2, kHidden);
  }

  void *bind(const char *name, const char *dtype, const void *data,
             size_t bytes, int64_t columns) {
    void *memory = nullptr;
    EXPECT_EQ(take(moert_device_allocate(device, bytes, &memory)), "");
    EXPECT_EQ(take(moert_device_copy_in(device, memory, data, bytes)), "");
    int64_t shape[] = {kTokens, columns};
    moert_tensor tensor = {name, dtype, memory, 2, shape, nullptr};
    EXPECT_EQ(take(moert_layer_bind(layer, &tensor)), "");
    return memory;
  }

  /// The weights that the layer has.
  HostWeights read() {
    HostWeights weights;
    for (const moert::TensorDecl &tensor : layer->executor->plan().tensors) {
      if (tensor.role != moert::TensorRole::Weight)
        continue;
      auto view = layer->executor->view(tensor.name);
      EXPECT_TRUE(view) << view.status().message();
      HostWeight &weight = weights[tensor.name];
      weight.dtype = view->dtype;
      weight.shape = view->shape;
      size_t count = 1;
      for (int64_t size : view->shape)
        count *= size_t(size);
      weight.bytes.resize(count * size_t(moert::dtypeBits(view->dtype)) / 8);
      EXPECT_TRUE(layer->device.copyOut(weight.bytes.data(), view->data,
                                        weight.bytes.size()));
    }
    return weights;
  }

  std::string load(const HostWeights &weights,
                   moejit_tensor_set set = MOEJIT_TENSORS_ALL,
                   bool onHost = true) {
    std::vector<moejit_named_tensor> tensors;
    for (const auto &[name, weight] : weights)
      tensors.push_back({name.c_str(), moert::dtypeName(weight.dtype),
                         weight.bytes.data(), int(weight.shape.size()),
                         weight.shape.data(), onHost});
    moejit_tensor_options options = {};
    options.size = sizeof(options);
    options.set = set;
    options.stream = MOERT_LAYER_STREAM;
    return take(moejit_layer_load_tensors(layer, tensors.data(),
                                          int(tensors.size()), &options));
  }

  std::map<std::string, const void *> findAddresses() {
    std::map<std::string, const void *> addresses;
    for (const moert::TensorDecl &tensor : layer->executor->plan().tensors)
      if (tensor.role == moert::TensorRole::Weight)
        addresses[tensor.name] = layer->executor->view(tensor.name)->data;
    return addresses;
  }

  std::vector<uint8_t> run() {
    EXPECT_EQ(take(moert_layer_prepare_weights(layer, nullptr)), "");
    EXPECT_EQ(
        take(moert_layer_run(layer, kTokens, MOERT_LAYER_STREAM, nullptr, 0)),
        "");
    EXPECT_EQ(take(moert_layer_synchronize(layer)), "");
    std::vector<uint8_t> bytes(kTokens * kHidden * 2);
    EXPECT_TRUE(layer->device.copyOut(bytes.data(), output, bytes.size()));
    return bytes;
  }

  moert_layer *layer = nullptr;

private:
  moert_device *device = nullptr;
  moejit_compiler *compiler = nullptr;
  void *output = nullptr;
};

struct RefitCase {
  const char *format, *quantization;
  /// Whether the target prepares weights of this format.
  bool isPreparedOnSm90;
};

constexpr RefitCase kCases[] = {
    {"bf16", "", false},
    {"fp8_block128", R"("fp8_block128")", false},
    {"int4", R"({"weight": {"dtype": "int4", "scale": {"group": 64}}})", true},
    {"nvfp4", R"("nvfp4")", true},
    {"mxfp4", R"("mxfp4")", true},
};

/// Random weights of a layer.
const HostWeights &draw(const std::string &spec, uint64_t seed) {
  static std::map<std::pair<std::string, uint64_t>, HostWeights> known;
  auto [entry, isNew] = known.try_emplace({spec, seed});
  if (isNew) {
    TestLayer layer("cpu");
    layer.compile(spec);
    EXPECT_EQ(take(moejit_layer_generate_weights(layer.layer, seed)), "");
    layer.run();
    entry->second = layer.read();
  }
  return entry->second;
}

class Refit
    : public ::testing::TestWithParam<std::tuple<RefitCase, const char *>> {};

} // namespace

TEST(RefitError, ListsOfTensorsAreChecked) {
  TestLayer layer("cpu");
  layer.compile(makeSpec(""));
  moejit_tensor_options options = {};
  options.size = sizeof(options);
  options.stream = MOERT_LAYER_STREAM;
  const int64_t shape[] = {1};
  float value = 0;
  moejit_named_tensor tensor = {"experts.w13", "f32", &value,
                                1 << 30,       shape, true};
  auto load = [&](int count) {
    return take(
        moejit_layer_load_tensors(layer.layer, &tensor, count, &options));
  };
  EXPECT_EQ(load(1), "the given tensors: tensor 'experts.w13' has rank "
                     "1073741824; a rank from 0 to 8 and a shape are accepted");
  EXPECT_EQ(load(-1), "moejit_layer_load_tensors: count is -1; 0 or more is "
                      "accepted");
}

TEST_P(Refit, GivesTheBitsOfAFreshLayer) {
  const auto &[format, architecture] = GetParam();
  std::string spec = makeSpec(format.quantization);
  HostWeights given[] = {draw(spec, 1), draw(spec, 2)};
  TestLayer fresh(architecture), layer(architecture);
  fresh.compile(spec);
  ASSERT_EQ(fresh.load(given[1]), "");
  std::vector<uint8_t> expected = fresh.run();

  layer.compile(spec);
  ASSERT_EQ(layer.load(given[0]), "");
  std::vector<uint8_t> before = layer.run();
  EXPECT_NE(before, expected);
  if (format.isPreparedOnSm90 && std::string(architecture) == "sm_90")
    EXPECT_GT(moert_layer_num_prepared(layer.layer), 0);
  auto addresses = layer.findAddresses();

  // Refused: nothing has changed, also of the tensors that are right.
  auto refuse = [&](const std::string &message, auto change) {
    HostWeights bad = given[1];
    change(bad.at("experts.w2"));
    std::string found = layer.load(bad);
    EXPECT_NE(found.find(message), std::string::npos) << found;
  };
  refuse("shape is", [](HostWeight &weight) { ++weight.shape[1]; });
  refuse("dtype is", [](HostWeight &weight) {
    weight.dtype = moert::DType::I64;
    weight.shape.back() = weight.shape.back() / 8;
  });
  // Memory of the host as memory of the device.
  EXPECT_NE(layer.load(given[1], MOEJIT_TENSORS_ALL, /*onHost=*/false), "");
  EXPECT_EQ(layer.run(), before);

  ASSERT_EQ(layer.load(given[1]), "");
  EXPECT_EQ(layer.run(), expected);
  EXPECT_EQ(layer.findAddresses(), addresses);
  // One tensor, and back.
  HostWeights some = {{"experts.w2", given[0].at("experts.w2")}};
  ASSERT_EQ(layer.load(some, MOEJIT_TENSORS_SOME), "");
  EXPECT_NE(layer.run(), expected);
  some["experts.w2"] = given[1].at("experts.w2");
  ASSERT_EQ(layer.load(some, MOEJIT_TENSORS_SOME), "");
  EXPECT_EQ(layer.run(), expected);
}

INSTANTIATE_TEST_SUITE_P(Formats, Refit,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("sm_80", "sm_90",
                                                              "sm_100")),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).format) +
                                  "_" + std::get<1>(info.param);
                         });
