//===- CApiTest.cpp - tests of the C API ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/CApi.h"
#include "CudaTesting.h"
#include "StatusTesting.h"
#include "TestPlan.h"
#include "moert/HostDevice.h"
#include "moert/moert.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

class CApiTest : public ::testing::Test {
protected:
  void SetUp() override {
    fake = &resetFakeCuda();
    setenv("MOERT_CUDA_LIBRARY", kFakeDriver, 1);
  }
  void TearDown() override {
    unsetenv("MOERT_CUDA_LIBRARY");
    EXPECT_EQ(fake->leaks(), "");
  }

  FakeCuda *fake = nullptr;
};

const int64_t kRows[] = {20, kWidth};
const int64_t kOne[] = {1};
const int64_t kScale[] = {kWidth};

/// Binds inputs and outputs; `x` and `y` have 20 rows.
void bindBatch(moert_layer *layer, void *x, void *offset, void *y) {
  moert_tensor tensors[] = {{"x", "f32", x, 2, kRows, nullptr},
                            {"offset", "i32", offset, 1, kOne, nullptr},
                            {"y", "f32", y, 2, kRows, nullptr}};
  for (const moert_tensor &tensor : tensors)
    ASSERT_DONE(moert_layer_bind(layer, &tensor));
}

std::vector<float> expectedRows(int64_t tokens) {
  std::vector<float> x(20 * kWidth, 1.5f), scale(kWidth, 0.5f);
  return std::vector<float>(tokens * kWidth,
                            expectedY(x, scale, 1, 0, 0, tokens));
}

} // namespace

TEST_F(CApiTest, RunsALayerOnACallersStream) {
  EXPECT_EQ(moert_api_version(), MOERT_API_VERSION);
  moert_package *package = nullptr;
  ASSERT_DONE(moert_package_open(PACKAGE_FIXTURE, &package));
  EXPECT_STREQ(moert_package_spec(package), "{\"hidden_size\": 4}");
  moert_device *device = nullptr;
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  EXPECT_STREQ(moert_device_name(device), "cuda:0 (Fake GPU)");
  moert_layer *layer = nullptr;
  moert_layer_options options = {sizeof(options), 1};
  ASSERT_DONE(moert_layer_create(package, device, &options, &layer));
  moert_package_free(package);

  std::vector<float> x(20 * kWidth, 1.5f), scale(kWidth, 0.5f), y(20 * kWidth);
  int32_t one = 1;
  void *memory[4];
  size_t bytes[] = {x.size() * 4, scale.size() * 4, 4, y.size() * 4};
  const void *data[] = {x.data(), scale.data(), &one};
  for (int i = 0; i < 4; ++i) {
    ASSERT_DONE(moert_device_allocate(device, bytes[i], &memory[i]));
    if (i < 3)
      ASSERT_DONE(moert_device_copy_in(device, memory[i], data[i], bytes[i]));
  }
  moert_tensor weight = {"scale", "f32", memory[1], 1, kScale, nullptr};
  ASSERT_DONE(moert_layer_bind(layer, &weight));
  moert_prepare_report report;
  ASSERT_DONE(moert_layer_prepare_weights(layer, &report));
  EXPECT_EQ(report.bytes, 16);
  // Memory of the caller's replaces the layer's own.
  void *prepared = nullptr;
  ASSERT_DONE(moert_device_allocate(device, 16, &prepared));
  moert_tensor twice = {"twice", "f32", prepared, 1, kScale, nullptr};
  ASSERT_DONE(moert_layer_bind(layer, &twice));
  ASSERT_DONE(moert_layer_prepare_weights(layer, &report));
  EXPECT_EQ(report.bytes, 0);
  ASSERT_DONE(moert_layer_release_weights(layer));
  moert_device_release(device, memory[1]);
  bindBatch(layer, memory[0], memory[2], memory[3]);

  int64_t needed = 0;
  ASSERT_DONE(moert_layer_workspace_bytes(layer, 20, &needed));
  void *workspace = nullptr;
  ASSERT_DONE(
      moert_device_allocate(device, static_cast<size_t>(needed), &workspace));
  for (void *stream : {static_cast<void *>(nullptr), MOERT_LAYER_STREAM})
    for (void *own : {workspace, static_cast<void *>(nullptr)})
      for (int64_t tokens : {20, 3}) {
        ASSERT_DONE(moert_layer_run(layer, tokens, stream, own, needed));
        ASSERT_DONE(moert_layer_synchronize_stream(layer, stream));
        std::vector<float> found(tokens * kWidth);
        ASSERT_DONE(moert_device_copy_out(device, found.data(), memory[3],
                                          found.size() * 4));
        EXPECT_EQ(found, expectedRows(tokens));
      }
  EXPECT_NE(take(moert_layer_run(layer, 20, nullptr, workspace, needed - 1))
                .find("run: the workspace has "),
            std::string::npos);
  moert_layer_free(layer);
  moert_device_release(device, workspace);
  // The device frees remaining memory.
  moert_device_free(device);
}

TEST_F(CApiTest, ListsWhatThereIsToBind) {
  moert_package *package = nullptr;
  moert_device *device = nullptr;
  moert_layer *layer = nullptr, *clone = nullptr;
  ASSERT_DONE(moert_package_open(PACKAGE_FIXTURE, &package));
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  ASSERT_DONE(moert_layer_create(package, device, nullptr, &layer));
  ASSERT_DONE(moert_layer_clone(layer, &clone));
  ASSERT_EQ(moert_layer_num_tensors(clone), 4);
  EXPECT_STREQ(moert_layer_spec(clone), "{\"hidden_size\": 4}");
  std::string plan = moert_layer_plan(clone);
  EXPECT_EQ(plan, moert_layer_plan(layer));
  for (const char *part :
       {"{\"target\":\"sm_80\",\"max_tokens\":100,", "\"min_tokens\":0,",
        "{\"name\":\"x\",\"role\":\"input\",\"dtype\":\"f32\",\"shape\":["})
    EXPECT_NE(plan.find(part), std::string::npos) << plan;
  EXPECT_STREQ(moert_layer_plan(nullptr), "");
  ASSERT_DONE(moert_device_synchronize(device, nullptr));
  EXPECT_EQ(moert_layer_max_tokens(clone), 100);
  const moert_tensor_info *x = moert_layer_tensor(clone, 0);
  EXPECT_STREQ(x->name, "x");
  EXPECT_STREQ(x->dtype, "f32");
  EXPECT_EQ(x->role, MOERT_INPUT);
  ASSERT_EQ(x->rank, 2);
  EXPECT_EQ(x->shape[0], 100);
  EXPECT_EQ(x->shape[1], kWidth);
  EXPECT_TRUE(x->depends_on_tokens);
  const moert_tensor_info *y = moert_layer_tensor(clone, 3);
  EXPECT_EQ(y->role, MOERT_OUTPUT);
  EXPECT_EQ(y->alignment, 16);
  EXPECT_EQ(moert_layer_tensor(clone, 1)->role, MOERT_WEIGHT);
  EXPECT_FALSE(moert_layer_tensor(clone, 1)->depends_on_tokens);
  EXPECT_EQ(moert_layer_tensor(clone, 4), nullptr);
  EXPECT_EQ(moert_layer_tensor(clone, -1), nullptr);
  ASSERT_EQ(moert_layer_num_prepared(clone), 1);
  const moert_tensor_info *twice = moert_layer_prepared(clone, 0);
  EXPECT_STREQ(twice->name, "twice");
  EXPECT_EQ(twice->role, MOERT_PREPARED);
  EXPECT_EQ(twice->shape[0], kWidth);
  EXPECT_EQ(twice->alignment, 256);
  EXPECT_TRUE(twice->read_by_runs);
  EXPECT_EQ(moert_layer_prepared(clone, 1), nullptr);
  moert_layer_free(layer);
  moert_layer_free(clone);
  moert_device_free(device);
  moert_package_free(package);
}

TEST_F(CApiTest, FailuresHaveACodeAndAMessage) {
  moert_package *package = reinterpret_cast<moert_package *>(1);
  moert_status *status = moert_package_open("/nonexistent.moepkg", &package);
  EXPECT_EQ(moert_status_code(status), MOERT_NOT_FOUND);
  EXPECT_EQ(package, nullptr);
  EXPECT_EQ(take(status), "/nonexistent.moepkg: cannot be read: No such file "
                          "or directory");
  EXPECT_EQ(take(moert_package_open(nullptr, &package)),
            "moert_package_open: the argument 'path' is NULL");
  EXPECT_EQ(take(moert_package_open("x", nullptr)),
            "moert_package_open: the argument 'package' is NULL");
  EXPECT_NE(take(moert_package_from_memory("x", 1, &package)), "");

  moert_device *device = nullptr;
  fake->numDevices = 0;
  status = moert_device_create_cuda(0, &device);
  EXPECT_EQ(moert_status_code(status), MOERT_UNAVAILABLE);
  EXPECT_NE(take(status), "");
  fake->numDevices = 1;
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  fake->memory = 1000;
  void *memory = nullptr;
  status = moert_device_allocate(device, 2000, &memory);
  EXPECT_EQ(moert_status_code(status), MOERT_RESOURCE_EXHAUSTED);
  take(status);
  fake->memory = 1 << 20;

  ASSERT_DONE(moert_package_open(PACKAGE_FIXTURE, &package));
  moert_layer *layer = nullptr;
  moert_layer_options options = {};
  EXPECT_NE(take(moert_layer_create(package, device, &options, &layer))
                .find("options.size is 0; sizeof"),
            std::string::npos);
  ASSERT_DONE(moert_layer_create(package, device, nullptr, &layer));
  moert_tensor tensor = {"x", "float", nullptr, 2, kRows, nullptr};
  EXPECT_NE(take(moert_layer_bind(layer, &tensor)).find("bind 'x': dtype"),
            std::string::npos);
  tensor.dtype = "f32";
  tensor.rank = 9;
  EXPECT_NE(take(moert_layer_bind(layer, &tensor)).find("rank 9"),
            std::string::npos);
  tensor.rank = 2;
  EXPECT_EQ(take(moert_layer_bind(layer, &tensor)),
            "bind 'x': the data pointer is null");
  status = moert_layer_run(layer, 1000, nullptr, nullptr, 0);
  EXPECT_EQ(moert_status_code(status), MOERT_OUT_OF_RANGE);
  take(status);
  EXPECT_EQ(take(moert_layer_prepare_weights(nullptr, nullptr)),
            "moert_layer_prepare_weights: the argument 'layer' is NULL");
  moert_layer_free(layer);
  moert_device_free(device);
  moert_package_free(package);
  moert_layer_free(nullptr);
  moert_device_free(nullptr);
  moert_package_free(nullptr);
  moert_status_free(nullptr);
}

TEST_F(CApiTest, HandlesServeTheHostToo) {
  moert_device host;
  Result<std::unique_ptr<Device>> made = createHostDevice(2);
  ASSERT_TRUE(made);
  host.device = std::move(*made);
  auto executor = Executor::create(makePlan(), *host.device, makeImage());
  ASSERT_TRUE(executor);
  moert_layer layer(*host.device, std::move(*executor), "", "");
  std::vector<float> x(20 * kWidth, 1.5f), scale(kWidth, 0.5f);
  int32_t one = 1;
  moert_tensor weight = {"scale", "f32", scale.data(), 1, kScale, nullptr};
  ASSERT_DONE(moert_layer_bind(&layer, &weight));
  ASSERT_DONE(moert_layer_prepare_weights(&layer, nullptr));
  moert_layer *clone = nullptr;
  ASSERT_DONE(moert_layer_clone(&layer, &clone));
  auto runBatch = [&](moert_layer *target) {
    void *y = nullptr;
    ASSERT_DONE(moert_device_allocate(&host, 20 * kWidth * 4, &y));
    bindBatch(target, x.data(), &one, y);
    for (int i = 0; i < 50; ++i)
      ASSERT_DONE(moert_layer_run(target, 20, MOERT_LAYER_STREAM, nullptr, 0));
    ASSERT_DONE(moert_layer_synchronize(target));
    auto *found = static_cast<float *>(y);
    EXPECT_EQ(std::vector<float>(found, found + 20 * kWidth), expectedRows(20));
    moert_device_release(&host, y);
  };
  std::thread other([&] { runBatch(clone); });
  runBatch(&layer);
  other.join();
  moert_layer_free(clone);
  EXPECT_NE(take(moert_layer_run(&layer, 20, nullptr, nullptr, 0))
                .find("stream: host has none of the caller's; give "
                      "MOERT_LAYER_STREAM"),
            std::string::npos);
}

TEST_F(CApiTest, MapsOfExperts) {
  moert_balance_options options = {sizeof(options), 3, 4, 1, 1, 2, 2};
  const double loads[] = {1, 6, 2};
  int64_t map[4] = {};
  ASSERT_DONE(moert_balance_experts(&options, loads, map));
  EXPECT_EQ(std::vector<int64_t>(map, map + 4),
            (std::vector<int64_t>{1, 2, 1, 0}));
  int32_t ids[6], counts[3];
  ASSERT_DONE(moert_replica_tables(map, 4, 3, 2, ids, counts));
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 6),
            (std::vector<int32_t>{3, -1, 0, 2, 1, -1}));
  EXPECT_EQ(std::vector<int32_t>(counts, counts + 3),
            (std::vector<int32_t>{1, 2, 1}));

  options.size = 8;
  EXPECT_NE(take(moert_balance_experts(&options, loads, map))
                .find("moert_balance_options.size is 8; set it to"),
            std::string::npos);
  options.size = sizeof(options);
  options.num_experts = -1;
  EXPECT_EQ(take(moert_balance_experts(&options, loads, map)),
            "num_experts is -1; 0 to 16777216 are accepted");
  options.num_experts = 3;
  options.num_physical = int64_t(1) << 40;
  EXPECT_EQ(take(moert_balance_experts(&options, loads, map)),
            "num_physical: 1099511627776 found, at most 16777216 expected");
  options.num_experts = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(take(moert_balance_experts(&options, loads, map)),
            "num_experts is 9223372036854775807; 0 to 16777216 are accepted");
  EXPECT_EQ(take(moert_balance_experts(&options, nullptr, map)),
            "moert_balance_experts: the argument 'loads' is NULL");
  EXPECT_EQ(take(moert_replica_tables(map, -1, 3, 2, ids, counts)),
            "num_physical is -1; 0 to 16777216 are accepted");
  EXPECT_EQ(take(moert_replica_tables(map, 4, 3, 2, nullptr, counts)),
            "moert_replica_tables: the argument 'physical_ids' is NULL");
}

TEST_F(CApiTest, CopiesNeedBothAddresses) {
  moert_device *device = nullptr;
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  char byte = 0;
  EXPECT_EQ(take(moert_device_copy_in(device, nullptr, &byte, 1)),
            "moert_device_copy_in: the argument 'to' is NULL");
  EXPECT_EQ(take(moert_device_copy_in(device, &byte, nullptr, 1)),
            "moert_device_copy_in: the argument 'from' is NULL");
  EXPECT_EQ(take(moert_device_copy_out(device, nullptr, &byte, 1)),
            "moert_device_copy_out: the argument 'to' is NULL");
  EXPECT_EQ(take(moert_device_copy_out(device, &byte, nullptr, 1)),
            "moert_device_copy_out: the argument 'from' is NULL");
  ASSERT_DONE(moert_device_copy_in(device, nullptr, nullptr, 0));
  ASSERT_DONE(moert_device_copy_out(device, nullptr, nullptr, 0));
  moert_device_free(device);
}

TEST_F(CApiTest, RanksOfNoMeshAreRefusedInCppToo) {
  moert::capi::Device device;
  ASSERT_FALSE(device.createCuda(0));
  std::vector<moert::capi::Communicator> made;
  auto create = [&](int64_t dp, int64_t tp) {
    moert_communicator_options options = {sizeof(options), dp, tp, 0};
    moert::capi::Error error =
        moert::capi::Communicator::createLocal(options, device, made);
    return error ? std::string(error.message()) : "";
  };
  EXPECT_EQ(create(2, 1), "");
  EXPECT_EQ(made.size(), 2u);
  EXPECT_EQ(create(-1, 1), "a mesh of dp -1 x tp 1; give at least 1 of each");
  EXPECT_TRUE(made.empty());
  EXPECT_EQ(create(0, 0), "a mesh of dp 0 x tp 0; give at least 1 of each");
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (auto [dp, tp] : {std::pair(most, most), {most / 2, int64_t(1)}})
    EXPECT_NE(create(dp, tp).find("; at most 65536 ranks are accepted"),
              std::string::npos);
}

TEST_F(CApiTest, ALayerWithoutReplicasHasNothingToMove) {
  moert_package *package = nullptr;
  moert_device *device = nullptr;
  moert_layer *layer = nullptr;
  ASSERT_DONE(moert_package_open(PACKAGE_FIXTURE, &package));
  ASSERT_DONE(moert_device_create_cuda(0, &device));
  ASSERT_DONE(moert_layer_create(package, device, nullptr, &layer));
  moert_communicator_options options = {sizeof(options), 1, 1, 0};
  moert_communicator *alone = nullptr;
  ASSERT_DONE(moert_communicator_create_local(&options, device, &alone));
  const int64_t map[] = {0, 0, 1}, own[] = {5, 6, 7};
  int64_t loads[2] = {};
  ASSERT_DONE(moert_layer_sum_loads(layer, alone, own, 3, map, 3, loads, 2));
  EXPECT_EQ(loads[0], 11);
  EXPECT_EQ(loads[1], 7);
  EXPECT_EQ(
      take(moert_layer_sum_loads(layer, alone, own, -1, map, 3, loads, 2)),
      "num_own is -1; 0 to 16777216 are accepted");
  moert_expert_move *move = nullptr;
  moert_tensor spare = {"scale", "f32", nullptr, 1, kScale, nullptr};
  auto begin = [&](int64_t count, int numSpare) {
    return take(moert_expert_move_begin(layer, alone, map, map, count, &spare,
                                        numSpare, &move));
  };
  EXPECT_EQ(begin(3, 1),
            "a move of experts: the layer has no 'replicas' over ranks; add "
            "them to its spec, beside 'parallel.experts'");
  EXPECT_EQ(begin(-1, 1), "num_physical is -1; 0 to 16777216 are accepted");
  EXPECT_EQ(begin(3, -1), "num_spare is -1; 0 to 16777216 are accepted");
  spare.dtype = "float";
  EXPECT_NE(begin(3, 1).find("bind 'scale': dtype 'float'"), std::string::npos);
  EXPECT_EQ(move, nullptr);
  EXPECT_EQ(moert_expert_move_num_steps(nullptr), 0);
  EXPECT_EQ(take(moert_expert_move_step(nullptr)),
            "moert_expert_move_step: the argument 'move' is NULL");
  EXPECT_EQ(take(moert_expert_move_switch(nullptr)),
            "moert_expert_move_switch: the argument 'move' is NULL");
  moert_expert_move_free(nullptr);
  moert_communicator_free(alone);
  moert_layer_free(layer);
  moert_device_free(device);
  moert_package_free(package);
}
