//===- PreparedMemoryTest.cpp - memory of prepared weights ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

using namespace moert;
using namespace moert::test;

namespace {

/// Memory of one prepared tensor.
struct alignas(kWorkspaceAlignment) Memory {
  std::vector<float> values() const { return {data, data + kWidth}; }

  float data[kWidth] = {};
};

class PreparedMemoryTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = createHostDevice(2);
    ASSERT_TRUE(made);
    device = std::move(*made);
    auto created = Executor::create(makePlan(), *device, makeImage());
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
    ASSERT_TRUE(bindScale(scale));
    bindBatch(*executor);
  }

  Status bindScale(std::vector<float> &values) {
    return executor->bind("scale", {values.data(), DType::F32, {kWidth}, {}});
  }

  Status give(Executor &to, void *data) {
    return to.bind("twice", {data, DType::F32, {kWidth}, {}});
  }

  void bindBatch(Executor &to) {
    ASSERT_TRUE(to.bind("x", {x.data(), DType::F32, {20, kWidth}, {}}));
    ASSERT_TRUE(to.bind("y", {y.data(), DType::F32, {20, kWidth}, {}}));
    ASSERT_TRUE(to.bind("offset", {&offset, DType::I32, {1}, {}}));
  }

  void expectRun(Executor &runs, const std::vector<float> &scale) {
    Status status = runs.run(20);
    ASSERT_TRUE(status) << status.toString();
    for (int64_t i = 0; i < 20 * kWidth; ++i)
      ASSERT_EQ(y[i], expectedY(x, scale, offset, i / kWidth, i % kWidth, 20))
          << i;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  Memory memory, other;
  std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f};
  const std::vector<float> twice = {1, -2, 4, 0.5f};
  std::vector<float> x = std::vector<float>(20 * kWidth, 1.5f);
  std::vector<float> y = std::vector<float>(20 * kWidth);
  int32_t offset = 3;
};

} // namespace

TEST_F(PreparedMemoryTest, IsTheCallers) {
  ASSERT_TRUE(give(*executor, memory.data));
  EXPECT_NE(executor->run(20).message().find("the weights are not prepared"),
            std::string::npos);
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_TRUE(report) << report.status().toString();
  EXPECT_EQ(report->bytes, 0);
  EXPECT_EQ(memory.values(), twice);
  expectRun(*executor, scale);
  EXPECT_EQ(executor->view("twice")->data, memory.data);

  // A new value of the weight is prepared in the same memory.
  scale[0] = 8;
  ASSERT_TRUE(executor->prepareAgain());
  EXPECT_EQ(memory.data[0], 16);
  expectRun(*executor, scale);
}

TEST_F(PreparedMemoryTest, ServesTheWeightsThatItWasGivenFor) {
  ASSERT_TRUE(give(*executor, memory.data));
  ASSERT_TRUE(executor->prepareWeights());
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  bindBatch(**clone);
  expectRun(**clone, scale);

  // The executor has other weights from now on; the clone has not.
  std::vector<float> changed = {3, 3, 3, 3};
  ASSERT_TRUE(bindScale(changed));
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bytes, kWidth * 4);
  expectRun(*executor, changed);
  EXPECT_EQ(memory.values(), twice);
  expectRun(**clone, scale);

  // Memory bound with the weights serves these weights.
  std::vector<float> third = {1, 1, 1, 1};
  ASSERT_TRUE(bindScale(third));
  ASSERT_TRUE(give(*executor, other.data));
  ASSERT_TRUE(executor->prepareWeights());
  EXPECT_EQ(other.values(), std::vector<float>(kWidth, 2));
  expectRun(*executor, third);
}

TEST_F(PreparedMemoryTest, ACloneThatIsNotPreparedHasMemoryOfItsOwn) {
  ASSERT_TRUE(give(*executor, memory.data));
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  Result<PrepareReport> report = (*clone)->prepareWeights();
  ASSERT_TRUE(report) << report.status().toString();
  EXPECT_EQ(report->bytes, kWidth * 4);
  EXPECT_EQ(memory.values(), std::vector<float>(kWidth));
}

TEST_F(PreparedMemoryTest, WeightsThatNoRunReadsAreReleased) {
  EXPECT_EQ(executor->releaseWeights().message(),
            "releaseWeights: the weights are not prepared; prepare them first");
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(executor->releaseWeights());
  const std::vector<float> before = scale;
  scale.assign(kWidth, 77);
  expectRun(*executor, before);
  EXPECT_FALSE(executor->bound("scale"));
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  bindBatch(**clone);
  expectRun(**clone, before);

  EXPECT_EQ(executor->prepareAgain().status().message(),
            "prepareWeights: weight 'scale' was released after its "
            "preparation; bind it again with its values");
  expectRun(*executor, before);
  ASSERT_TRUE(bindScale(scale));
  ASSERT_TRUE(executor->prepareWeights());
  expectRun(*executor, scale);
}

TEST_F(PreparedMemoryTest, WeightsThatRunsReadStay) {
  Plan plan = makePlan();
  plan.variants[1].steps[1].args[1] = Argument::ofTensor(Scale);
  auto created = Executor::create(std::move(plan), *device, makeImage());
  ASSERT_TRUE(created) << created.status().toString();
  executor = std::move(*created);
  ASSERT_TRUE(bindScale(scale));
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(executor->releaseWeights());
  EXPECT_EQ(executor->bound("scale")->data, scale.data());
}

TEST_F(PreparedMemoryTest, IsRefusedWhereItCannotBe) {
  const struct {
    TensorView view;
    const char *message;
  } cases[] = {
      {{memory.data, DType::I32, {kWidth}, {}},
       "bind 'twice': dtype f32 expected, i32 found"},
      {{memory.data, DType::F32, {kWidth / 2}, {}},
       "bind 'twice': shape [4] expected, [2] found"},
      {{memory.data, DType::F32, {kWidth}, {2}}, "(contiguous) expected"},
      {{memory.data + 1, DType::F32, {kWidth}, {}}, "aligned to 256 bytes"},
      {{nullptr, DType::F32, {kWidth}, {}}, "the data pointer is null"},
  };
  for (const auto &c : cases)
    EXPECT_NE(executor->bind("twice", c.view).message().find(c.message),
              std::string::npos)
        << c.message;
  EXPECT_NE(executor->bind("h", {memory.data, DType::F32, {20, kWidth}, {}})
                .message()
                .find("a workspace tensor belongs to the executor"),
            std::string::npos);

  Memory weight;
  ASSERT_TRUE(executor->bind("scale", {weight.data, DType::F32, {kWidth}, {}}));
  ASSERT_TRUE(give(*executor, weight.data));
  EXPECT_EQ(executor->prepareWeights().status().message(),
            "prepareWeights 'twice': shares memory with the weight 'scale'; "
            "bind separate memory");
  ASSERT_TRUE(give(*executor, memory.data));
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(executor->bind("y", {memory.data, DType::F32, {1, kWidth}, {}}));
  EXPECT_EQ(executor->run(1).message(),
            "run 'y': shares memory with the prepared 'twice'; give it its own "
            "memory");
}

TEST_F(PreparedMemoryTest, InPlaceItIsTheWeights) {
  Plan plan = makePlan();
  plan.tensors[Twice].inPlaceOf = Scale;
  plan.prepare = {Step::launch(0, {Argument::ofTensor(Twice)})};
  auto created = Executor::create(std::move(plan), *device, makeImage());
  ASSERT_TRUE(created) << created.status().toString();
  EXPECT_EQ(give(**created, memory.data).message(),
            "bind 'twice': is prepared in the memory of the weight 'scale'; "
            "bind that weight");
}
