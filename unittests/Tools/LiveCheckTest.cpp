//===- LiveCheckTest.cpp - tests of MOEC_VERIFY -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/CApi.h"
#include "../Runtime/StatusTesting.h"
#include "moec/Import/LayerSpec.h"
#include "moec/PtxSim/SimDevice.h"
#include "moejit/moejit.h"
#include "moert/HostDevice.h"
#include "moert/Safetensors.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

using moert::test::take;

namespace {

constexpr const char *kLayer = R"({"moec_spec": 1, "dtype": "bf16",
  "entry": "ids", "hidden_size": 64, "num_experts": 4, "top_k": 1,
  "intermediate_size": 64, "max_tokens": 16, "activation": {"kind": "silu"}})";
constexpr const char *kInt4Layer = R"({"moec_spec": 1, "dtype": "bf16",
  "entry": "ids", "hidden_size": 64, "num_experts": 4, "top_k": 1,
  "intermediate_size": 64, "max_tokens": 16, "activation": {"kind": "silu"},
  "quantization": {"weight": {"dtype": "int4", "scale": {"group": 64}}}})";
constexpr int64_t kTokens = 8, kHidden = 64;

class LiveCheckTest : public ::testing::Test {
protected:
  void SetUp() override {
    llvm::SmallString<128> path;
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("moec-verify", path));
    folder = path.str().str();
    verify.size = sizeof(verify);
    verify.folder = folder.c_str();
  }
  void TearDown() override {
    moert_layer_free(layer);
    moejit_compiler_free(compiler);
    moert_device_free(device);
    (void)llvm::sys::fs::remove_directories(folder);
    unsetenv("MOEC_VERIFY");
    unsetenv("MOERT_CUDA_LIBRARY");
  }

  void useHost() { ASSERT_DONE(moejit_device_create_host(1, &device)); }
  void useSimulator() {
    auto made = moec::ptx::createSimDevice({});
    ASSERT_TRUE(made);
    device = new moert_device;
    device->device = std::move(*made);
  }

  void load(const char *text) {
    moejit_options options = {};
    options.size = sizeof(options);
    options.no_cache = options.no_ptxas = 1;
    moejit_source source = {};
    source.size = sizeof(source);
    source.path = "layer.json";
    source.text = text;
    source.text_bytes = strlen(text);
    ASSERT_DONE(moejit_compiler_create(&options, &compiler));
    ASSERT_DONE(
        moejit_load_layer(compiler, &source, device, nullptr, &layer, nullptr));
    ASSERT_DONE(moejit_layer_generate_weights(layer, 1));
  }

  /// Binds inputs and an output; row t has expert t modulo 4.
  void bindCall() {
    std::vector<uint16_t> hidden(kTokens * kHidden);
    for (size_t i = 0; i < hidden.size(); ++i)
      hidden[i] = uint16_t(0x3F00 + i * 7 % 0x90 + (i % 3 ? 0x8000 : 0));
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < kTokens; ++t)
      ids.push_back(t % 4);
    std::vector<float> weights(kTokens, 0.5F);
    bind("hidden_states", "bf16", hidden.data(), hidden.size() * 2, kHidden);
    bind("topk_ids", "i32", ids.data(), ids.size() * 4, 1);
    bind("topk_weights", "f32", weights.data(), weights.size() * 4, 1);
    bind("output", "bf16", hidden.data(), hidden.size() * 2, kHidden);
  }

  void bind(const char *name, const char *dtype, const void *data, size_t bytes,
            int64_t columns) {
    void *memory = nullptr;
    ASSERT_DONE(moert_device_allocate(device, bytes, &memory));
    ASSERT_DONE(moert_device_copy_in(device, memory, data, bytes));
    int64_t shape[] = {kTokens, columns};
    moert_tensor tensor = {name, dtype, memory, 2, shape, nullptr};
    ASSERT_DONE(moert_layer_bind(layer, &tensor));
  }

  std::string run(void *stream = MOERT_LAYER_STREAM) {
    return take(moert_layer_run(layer, kTokens, stream, nullptr, 0));
  }

  /// The layer computes with other elements from here on, unlike the weights.
  void spoil(const moert_tensor_info &info, size_t begin, size_t end) {
    auto view = layer->executor->view(info.name);
    ASSERT_TRUE(view) << view.status().message();
    std::vector<uint8_t> bytes(end - begin, 0x5A);
    ASSERT_TRUE(layer->device.copyIn(static_cast<uint8_t *>(view->data) + begin,
                                     bytes.data(), bytes.size()));
  }

  std::vector<std::string> list() const {
    std::vector<std::string> names;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(folder, error), end;
         it != end && !error; it.increment(error))
      names.push_back(it->path());
    return names;
  }

  std::string folder;
  moert_device *device = nullptr;
  moejit_compiler *compiler = nullptr;
  moert_layer *layer = nullptr;
  moejit_verify_options verify = {};
};

} // namespace

TEST_F(LiveCheckTest, ComparesEveryThirdRun) {
  useHost();
  load(kLayer);
  bindCall();
  verify.every = 3;
  // The reference evaluates another activation than the kernels.
  auto spec = std::make_shared<moec::LayerSpec>(
      *static_cast<const moec::LayerSpec *>(layer->description.get()));
  spec->activation.kind = moec::Activation::Gelu;
  layer->description = spec;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  EXPECT_TRUE(moejit_layer_is_verified(layer));
  for (int number = 1; number <= 9; ++number) {
    ASSERT_EQ(run(), "");
    std::string found = take(moert_layer_synchronize(layer));
    std::string where = "run " + std::to_string(number) + " of 8 tokens: row ";
    EXPECT_EQ(found.find(where) != std::string::npos, number % 3 == 0) << found;
    EXPECT_EQ(found.empty(), number % 3 != 0) << found;
    // Told once.
    EXPECT_EQ(take(moert_layer_synchronize(layer)), "");
  }
  EXPECT_EQ(list().size(), 3u);
}

TEST_F(LiveCheckTest, IsNeverOnByItself) {
  useHost();
  load(kLayer);
  ASSERT_DONE(moejit_layer_verify(layer, nullptr));
  EXPECT_FALSE(moejit_layer_is_verified(layer));
  setenv("MOEC_VERIFY", "0", 1);
  ASSERT_DONE(moejit_layer_verify(layer, nullptr));
  EXPECT_FALSE(moejit_layer_is_verified(layer));
  setenv("MOEC_VERIFY", "-3", 1);
  EXPECT_NE(take(moejit_layer_verify(layer, nullptr))
                .find("MOEC_VERIFY is '-3'; give a number N"),
            std::string::npos);
  setenv("MOEC_VERIFY", "2", 1);
  ASSERT_DONE(moejit_layer_verify(layer, nullptr));
  EXPECT_TRUE(moejit_layer_is_verified(layer));
  EXPECT_NE(take(moert_layer_release_weights(layer))
                .find("MOEC_VERIFY compares runs with the weights"),
            std::string::npos);
  moert_layer *clone = nullptr;
  ASSERT_DONE(moert_layer_clone(layer, &clone));
  EXPECT_TRUE(moejit_layer_is_verified(clone));
  moert_layer_free(clone);
}

/// Weights of one expert are wrong as the kernels read them, and right as they
/// were given.
TEST_F(LiveCheckTest, FindsASpoiltPreparedWeight) {
  useSimulator();
  load(kInt4Layer);
  bindCall();
  verify.every = 1;
  verify.rows = kTokens;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  ASSERT_DONE(moert_layer_prepare_weights(layer, nullptr));
  ASSERT_EQ(run(), "");
  ASSERT_DONE(moert_layer_synchronize(layer));

  ASSERT_GT(moert_layer_num_prepared(layer), 0);
  const moert_tensor_info &info = *moert_layer_prepared(layer, 0);
  ASSERT_EQ(info.shape[0], 4);
  size_t bytes = size_t(moert::dtypeBits(*moert::parseDType(info.dtype)) / 8);
  for (int i = 1; i < info.rank; ++i)
    bytes *= size_t(info.shape[i]);
  // Expert 2, whose first row is row 2.
  spoil(info, 2 * bytes, 3 * bytes);
  ASSERT_EQ(run(), "");
  std::string found = take(moert_layer_synchronize(layer));
  EXPECT_NE(found.find("MOEC_VERIFY: layer 'layer', run 2 of 8 tokens: row 2 "
                       "is wrong: output: "),
            std::string::npos)
      << found;

  std::vector<std::string> folders = list();
  ASSERT_EQ(folders.size(), 1u);
  auto text = llvm::MemoryBuffer::getFile(folders[0] + "/finding.json");
  ASSERT_TRUE(bool(text));
  auto finding = llvm::json::parse((*text)->getBuffer());
  ASSERT_TRUE(bool(finding));
  const llvm::json::Object &object = *finding->getAsObject();
  EXPECT_EQ(object.getInteger("row"), 2);
  EXPECT_EQ(object.getInteger("run"), 2);
  EXPECT_EQ((*object.getArray("ids"))[0].getAsInteger(), 2);
  // The row's expert alone.
  auto inputs =
      moert::SafetensorsFile::open(folders[0] + "/inputs.safetensors");
  ASSERT_TRUE(inputs) << inputs.status().message();
  EXPECT_EQ(inputs->find("experts.w13")->shape[0], 1);
  EXPECT_EQ(inputs->find("hidden_states")->shape,
            (std::vector<int64_t>{1, kHidden}));
}

/// The host does not wait for a compared run; later work of its stream
/// overwrites what the run read and wrote.
TEST_F(LiveCheckTest, ComparesTheRowsOfTheRunItself) {
  useSimulator();
  load(kLayer);
  bindCall();
  verify.every = 2;
  verify.rows = kTokens;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  moert::Executor &executor = *layer->executor;
  auto spoilLater = [&](const char *name) {
    auto view = executor.view(name);
    ASSERT_TRUE(view) << view.status().message();
    ASSERT_TRUE(layer->device.fill(executor.ownStream(), view->data, 0x5A,
                                   kTokens * kHidden * 2));
  };
  for (int number = 1; number <= 4; ++number) {
    ASSERT_EQ(run(), "");
    spoilLater("output");
  }
  spoilLater("hidden_states");
  EXPECT_EQ(take(moert_layer_synchronize(layer)), "");

  // The same rows are wrong where they are overwritten ahead of the copies.
  verify.every = 1;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  ASSERT_TRUE(layer->device.synchronize(executor.ownStream()));
  ASSERT_TRUE(layer->watch->beforeRun(nullptr));
  layer->watch->afterRun(kTokens, nullptr);
  EXPECT_NE(take(moert_layer_synchronize(layer)).find("is wrong"),
            std::string::npos);
}

TEST_F(LiveCheckTest, RefusesACapturedRun) {
  setenv("MOERT_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  load(kLayer);
  bindCall();
  ASSERT_DONE(moert_layer_prepare_weights(layer, nullptr));
  ASSERT_EQ(run(), "");
  verify.every = 1;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  moert::Device &gpu = *device->device;
  auto stream = gpu.createStream();
  ASSERT_TRUE(stream);
  layer->stream = std::move(*stream);
  layer->native = nullptr;
  auto capture = [&] {
    std::string message;
    auto graph = moert::captureGraph(gpu, *layer->stream, [&] {
      message = run(layer->native);
      return moert::Status::ok();
    });
    return message;
  };
  EXPECT_NE(capture().find("MOEC_VERIFY: the run is captured into a graph, "
                           "whose replays are not compared"),
            std::string::npos);
  verify.skip_captured = 1;
  ASSERT_DONE(moejit_layer_verify(layer, &verify));
  EXPECT_EQ(capture(), "");
  EXPECT_EQ(take(moert_layer_synchronize(layer)), "");
  // The fake computes nothing.
  ASSERT_EQ(run(layer->native), "");
  EXPECT_NE(take(moert_layer_synchronize(layer)).find("run 1 of 8 tokens"),
            std::string::npos);
  layer->stream.reset();
}
