//===- JitCApiTest.cpp - tests of the compiler for C ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moejit/moejit.h"

#include "../Runtime/StatusTesting.h"
#include "JitTesting.h"

#include "llvm/ADT/STLExtras.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

using namespace moec;
using namespace moec::test;
using moert::test::take;

/// In HeaderTest.c.
extern "C" size_t sizesInC(void);

namespace {

class JitCApiTest : public FolderTest {
protected:
  void SetUp() override {
    FolderTest::SetUp();
    cache = getPath("cache");
    options.size = sizeof(options);
    options.cache_directory = cache.c_str();
    options.message = [](void *user, moejit_severity severity,
                         const char *text) {
      auto *test = static_cast<JitCApiTest *>(user);
      // Compiling threads report their kernels.
      std::lock_guard<std::mutex> guard(test->mutex);
      if (severity == MOEJIT_STEP)
        return test->steps.push_back(text);
      (severity == MOEJIT_WARNING ? test->warnings : test->progress)
          .push_back(text);
    };
    options.message_user = this;
    text = makeSpec().getText().str();
    source.size = sizeof(source);
    source.path = "layer.json";
    source.text = text.data();
    source.text_bytes = text.size();
  }
  void TearDown() override {
    moejit_compiler_free(compiler);
    FolderTest::TearDown();
  }

  std::string compile() {
    void *data = nullptr;
    size_t size = 0;
    std::string message =
        take(moejit_compile(compiler, &source, &data, &size, &report));
    bytes.assign(static_cast<const char *>(data), size);
    moejit_free(data);
    return message;
  }

  std::string cache, text, bytes;
  std::vector<std::string> progress, steps;
  std::mutex mutex;
  moejit_options options = {};
  moejit_source source = {};
  moejit_report report = {};
  moejit_compiler *compiler = nullptr;
};

TEST_F(JitCApiTest, TheHeaderIsC) {
  EXPECT_EQ(moejit_api_version(), MOEJIT_API_VERSION);
  EXPECT_EQ(sizesInC(), sizeof(moejit_options) + sizeof(moejit_source) +
                            sizeof(moejit_report));
}

TEST_F(JitCApiTest, CompilesTextAndFiles) {
  options.target = "sm_80";
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  ASSERT_EQ(compile(), "");
  EXPECT_FALSE(report.from_cache);
  EXPECT_GT(report.seconds, 0);
  EXPECT_FALSE(progress.empty());
  // The stages before the kernels, then each kernel.
  ASSERT_FALSE(steps.empty());
  // Calls begin with the second step.
  size_t all = steps.size() + 1;
  EXPECT_EQ(steps[0], "2/" + std::to_string(all));
  std::string last = std::to_string(all) + "/" + std::to_string(all);
  EXPECT_EQ(llvm::count(steps, last), 1);
  moert_package *package = nullptr;
  ASSERT_DONE(moert_package_from_memory(bytes.data(), bytes.size(), &package));
  EXPECT_NE(
      std::string(moert_package_spec(package)).find("\"hidden_size\": 64"),
      std::string::npos);
  moert_package_free(package);

  std::string first = std::move(bytes), path = getPath("model.json");
  writeFile(path, text);
  source.path = path.c_str();
  source.text = nullptr;
  ASSERT_EQ(compile(), "");
  EXPECT_TRUE(report.from_cache);
  EXPECT_EQ(steps.size(), all - 1);
  EXPECT_EQ(bytes, first);
  source.max_tokens = 7;
  ASSERT_EQ(compile(), "");
  EXPECT_FALSE(report.from_cache);
  EXPECT_EQ(warnings, std::vector<std::string>());
}

/// Another config is another layer, also in the cache.
TEST_F(JitCApiTest, TakesConfigs) {
  options.target = "sm_90a";
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  ASSERT_EQ(compile(), "");
  std::string chosen = bytes;
  moejit_compiler_free(compiler);

  const char *configs[] = {"experts_out:block_m=48 block_n=64 stages=4"};
  options.configs = configs;
  options.num_configs = 1;
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  ASSERT_EQ(compile(), "");
  EXPECT_FALSE(report.from_cache);
  EXPECT_NE(bytes, chosen);
  ASSERT_EQ(compile(), "");
  EXPECT_TRUE(report.from_cache);
  moejit_compiler_free(compiler);

  configs[0] = "nowhere:block_n=64";
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  EXPECT_NE(compile().find("'nowhere:block_n=64' matches no kernel"),
            std::string::npos);
  moejit_compiler_free(compiler);
  compiler = nullptr;

  options.configs = nullptr;
  EXPECT_EQ(take(moejit_compiler_create(&options, &compiler)),
            "moejit_compiler_create: the argument 'options->configs' is NULL");
}

TEST_F(JitCApiTest, LoadsALayerForTheDevice) {
  setenv("MOERT_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  moert_device *device = nullptr;
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  moert_layer *layer = nullptr;
  ASSERT_DONE(
      moejit_load_layer(compiler, &source, device, nullptr, &layer, &report));
  EXPECT_FALSE(report.from_cache);
  EXPECT_EQ(moert_layer_max_tokens(layer), 64);
  EXPECT_STREQ(moert_layer_tensor(layer, 0)->name, "hidden_states");
  moert_layer_free(layer);
  ASSERT_DONE(
      moejit_load_layer(compiler, &source, device, nullptr, &layer, nullptr));
  moert_layer_free(layer);
  // The layer's own file has PTX and cubins for the GPU.
  moert_package *package = nullptr;
  std::string entry;
  for (const std::string &name : list("cache"))
    if (llvm::StringRef(name).ends_with(".moepkg"))
      entry = getPath("cache/" + name);
  ASSERT_DONE(moert_package_open(entry.c_str(), &package));
  ASSERT_DONE(moert_layer_create(package, device, nullptr, &layer));
  moert_package_free(package);
  moert_layer_free(layer);

  source.text_bytes = 10;
  std::string message = take(
      moejit_load_layer(compiler, &source, device, nullptr, &layer, nullptr));
  EXPECT_EQ(layer, nullptr);
  EXPECT_NE(message.find("layer.json:1:"), std::string::npos) << message;
  moert_device_free(device);
  unsetenv("MOERT_CUDA_LIBRARY");

  // The device is an H100, which was measured: configs were chosen for it, not
  // for the target's default.
  source.text_bytes = text.size();
  options.target = "sm_90a";
  for (auto [part, isSame] : {std::pair("h100-sxm", 1), std::pair("h200", 0)}) {
    moejit_compiler_free(compiler);
    compiler = nullptr;
    options.device_part = part;
    ASSERT_DONE(moejit_compiler_create(&options, &compiler));
    ASSERT_EQ(compile(), "");
    EXPECT_EQ(report.from_cache, isSame) << part;
  }
}

/// The host device accepts memory of the process, and only the layer's own
/// stream.
TEST_F(JitCApiTest, LoadsALayerForTheHost) {
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  moert_device *device = nullptr;
  ASSERT_DONE(moejit_device_create_host(2, &device));
  EXPECT_STREQ(moert_device_name(device), "host");
  source.entry = "ids";
  source.max_tokens = 3;
  source.num_valid_tokens = 1;
  moert_layer *layer = nullptr;
  ASSERT_DONE(
      moejit_load_layer(compiler, &source, device, nullptr, &layer, &report));
  EXPECT_FALSE(report.from_cache);
  EXPECT_EQ(moert_layer_max_tokens(layer), 3);
  EXPECT_NE(std::string(moert_layer_spec(layer)).find("\"entry\": \"ids\""),
            std::string::npos);
  // Zeros of any type.
  std::vector<std::vector<char>> memory;
  for (int i = 0; i < moert_layer_num_tensors(layer); ++i) {
    const moert_tensor_info &info = *moert_layer_tensor(layer, i);
    int64_t elements = 1;
    for (int d = 0; d < info.rank; ++d)
      elements *= info.shape[d];
    bool isOutput = info.role == MOERT_OUTPUT;
    memory.emplace_back(size_t(elements) * 4, isOutput ? 1 : 0);
    moert_tensor tensor = {info.name, info.dtype, memory.back().data(),
                           info.rank, info.shape, nullptr};
    ASSERT_DONE(moert_layer_bind(layer, &tensor));
  }
  ASSERT_DONE(moert_layer_prepare_weights(layer, nullptr));
  ASSERT_DONE(moert_layer_run(layer, 3, MOERT_LAYER_STREAM, nullptr, 0));
  ASSERT_DONE(moert_device_synchronize(device, nullptr));
  for (int i = 0; i < moert_layer_num_tensors(layer); ++i)
    if (moert_layer_tensor(layer, i)->role == MOERT_OUTPUT)
      EXPECT_EQ(memory[size_t(i)][0], 0);
  EXPECT_NE(take(moert_layer_run(layer, 3, nullptr, nullptr, 0))
                .find("give MOERT_LAYER_STREAM"),
            std::string::npos);
  moert_layer_free(layer);

  source.entry = "router";
  EXPECT_NE(
      take(moejit_load_layer(compiler, &source, device, nullptr, &layer,
                             nullptr))
          .find("moejit_source.entry: 'router' is not one of gate, logits "
                "and ids"),
      std::string::npos);
  EXPECT_EQ(layer, nullptr);
  moert_device_free(device);
  EXPECT_NE(take(moejit_device_create_host(-1, &device))
                .find("threads: -1 found; 1 to 4096, or 0 for the default"),
            std::string::npos);
  EXPECT_EQ(device, nullptr);
}

TEST_F(JitCApiTest, SaysWhatIsWrong) {
  EXPECT_EQ(take(moejit_compiler_create(&options, nullptr)),
            "moejit_compiler_create: the argument 'compiler' is NULL");
  options.size = 8;
  EXPECT_NE(take(moejit_compiler_create(&options, &compiler))
                .find("moejit_options.size is 8; sizeof(moejit_options) is "),
            std::string::npos);
  options.size = sizeof(options);
  options.threads = ~0u;
  EXPECT_EQ(take(moejit_compiler_create(&options, &compiler)),
            "moejit_options.threads = 4294967295: 0 to 4096 are accepted");
  options.threads = 0;
  const char *config = "x";
  options.configs = &config;
  options.num_configs = 1;
  EXPECT_NE(take(moejit_compiler_create(&options, &compiler))
                .find("moejit_options.configs: config 'x': write KERNEL:TEXT"),
            std::string::npos);
  options.num_configs = 0;
  options.target = "cpu";
  EXPECT_NE(take(moejit_compiler_create(&options, &compiler))
                .find("moejit_options.target: target 'cpu' cannot be compiled "
                      "into a package"),
            std::string::npos);
  options.target = nullptr;
  options.device_part = "h300";
  EXPECT_NE(take(moejit_compiler_create(&options, &compiler))
                .find("moejit_options.device_part: part 'h300' is unknown; "
                      "accepted are a100-sxm, "),
            std::string::npos);
  options.device_part = nullptr;
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  EXPECT_NE(compile().find("no target is set; set moejit_options.target"),
            std::string::npos);
  moejit_compiler_free(compiler);
  options.target = "sm_80";
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  source.path = "layer.txt";
  EXPECT_NE(compile().find("layer.txt: moejit_source.path ends with neither"),
            std::string::npos);
  source.path = "/nonexistent/layer.json";
  source.text = nullptr;
  moert_status *status =
      moejit_compile(compiler, &source, nullptr, nullptr, nullptr);
  EXPECT_EQ(moert_status_code(status), MOERT_INVALID_ARGUMENT);
  EXPECT_EQ(take(status), "moejit_compile: the argument 'data' is NULL");
  EXPECT_NE(compile().find("/nonexistent/layer.json: error: cannot be read"),
            std::string::npos);
  source.path = nullptr;
  EXPECT_EQ(compile(), "moejit_compile: the argument 'source->path' is NULL");
  source.path = "layer.json";
  source.num_ignored_fields = 1;
  EXPECT_EQ(compile(),
            "moejit_compile: the argument 'source->ignored_fields' is NULL");
  source.num_ignored_fields = 0;
  source.path = nullptr;
  source.size = 1;
  EXPECT_NE(compile().find("moejit_source.size is 1"), std::string::npos);
  EXPECT_EQ(bytes, "");
}

// The compiler's messages name options of the commands.
TEST_F(JitCApiTest, MessagesNameFieldsOfC) {
  options.target = "sm_80";
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  auto expect = [&](const char *message) {
    std::string found = compile();
    EXPECT_NE(found.find(message), std::string::npos) << message << found;
    EXPECT_EQ(found.find("--"), std::string::npos) << found;
  };
  source.max_tokens = int64_t(1) << 40;
  expect("moejit_source.max_tokens must be an integer from 1 to 16777216, not "
         "1099511627776");
  source.max_tokens = 0;
  source.num_experts = 1000;
  expect("moejit_source.num_experts = 1000 is more than the 4 experts");
  source.num_experts = 0;
  source.part = "vision";
  expect("moejit_source.part = \"vision\": a spec is of one part");
  source.part = nullptr;
  int64_t layer = 3;
  source.layer = &layer;
  expect("moejit_source.layer = 3: a spec is of one layer");
  source.layer = nullptr;
  const char *ignored[] = {"some.key"};
  source.ignored_fields = ignored;
  source.num_ignored_fields = 1;
  expect("moejit_source.ignored_fields = {\"some.key\"}: no such key");
  source.num_ignored_fields = 0;
  source.path = "layer.mlir";
  source.text = "module {}";
  source.text_bytes = strlen(source.text);
  source.num_experts = 4;
  source.batch_invariant = 1;
  expect("layer.mlir: error: moejit_source.num_experts, "
         "moejit_source.batch_invariant = 1: only a description in JSON takes "
         "this; change the IR instead");
}

TEST_F(JitCApiTest, WarnsOnce) {
  writeFile(cache, "a file");
  options.target = "sm_80";
  options.no_ptxas = 1;
  ASSERT_DONE(moejit_compiler_create(&options, &compiler));
  EXPECT_EQ(compile(), "");
  EXPECT_EQ(compile(), "");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("compiled layers are not cached"),
            std::string::npos);
}

} // namespace
