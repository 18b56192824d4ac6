//===- PrepareTest.cpp - tests of weights prepared in place -----*- C++ -*-===//
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

/// Doubles the contents of `scale` in place.
void doubleInPlace(const uint64_t *args, int64_t) {
  auto *twice = reinterpret_cast<float *>(static_cast<uintptr_t>(args[0]));
  for (int64_t i = 0; i < kWidth; ++i)
    twice[i] *= 2;
}

/// makePlan() with `twice` in the memory of `scale`.
Plan makeInPlacePlan() {
  Plan plan = makePlan();
  plan.tensors[Twice].inPlaceOf = Scale;
  plan.kernels[0].name = "double_in_place";
  plan.prepare = {Step::launch(0, {Argument::ofTensor(Twice)})};
  return plan;
}

class PrepareTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = createHostDevice(2);
    ASSERT_TRUE(made);
    device = std::move(*made);
    ModuleImage image;
    image.lookup =
        [inner = makeImage()](const std::string &name) -> Result<HostKernelFn> {
      if (name == "double_in_place")
        return &doubleInPlace;
      return inner.lookup(name);
    };
    auto created = Executor::create(makeInPlacePlan(), *device, image);
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
    ASSERT_TRUE(bindScale());
    bindBatch(*executor, y);
  }

  Status bindScale() {
    scale = original;
    return executor->bind("scale", {scale.data(), DType::F32, {kWidth}, {}});
  }

  void bindBatch(Executor &to, std::vector<float> &output) {
    ASSERT_TRUE(to.bind("x", {x.data(), DType::F32, {20, kWidth}, {}}));
    ASSERT_TRUE(to.bind("y", {output.data(), DType::F32, {20, kWidth}, {}}));
    ASSERT_TRUE(to.bind("offset", {&offset, DType::I32, {1}, {}}));
  }

  void expectResult(const std::vector<float> &output) {
    for (int64_t i = 0; i < 20 * kWidth; ++i)
      ASSERT_EQ(output[i],
                expectedY(x, original, offset, i / kWidth, i % kWidth, 20))
          << i;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  const std::vector<float> original = {0.5f, -1.0f, 2.0f, 0.25f};
  std::vector<float> x = std::vector<float>(20 * kWidth, 1.5f);
  std::vector<float> y = std::vector<float>(20 * kWidth);
  std::vector<float> scale;
  int32_t offset = 3;
};

} // namespace

// field-bug: vllm#53629, vllm#47851, vllm-backport#68, Automodel#3663
TEST_F(PrepareTest, OverwritesTheWeightOnce) {
  EXPECT_NE(executor->run(20).message().find("the weights are not prepared"),
            std::string::npos);
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_TRUE(report) << report.status().toString();
  EXPECT_EQ(report->bytes, 0);
  EXPECT_EQ(report->inPlaceBytes, kWidth * 4);
  EXPECT_GT(report->seconds, 0);
  EXPECT_EQ(scale[0], 1.0f);
  ASSERT_TRUE(executor->run(20));
  expectResult(y);
  EXPECT_EQ(executor->view("twice")->data, scale.data());

  // Again: returns the same report and does nothing.
  Result<PrepareReport> again = executor->prepareWeights();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->seconds, report->seconds);
  EXPECT_EQ(scale[0], 1.0f);

  // A clone has prepared weights.
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  std::vector<float> other(y.size());
  bindBatch(**clone, other);
  ASSERT_TRUE((*clone)->prepareWeights());
  ASSERT_TRUE((*clone)->run(20));
  expectResult(other);
  EXPECT_EQ(scale[0], 1.0f);
}

// field-bug: sglang#30761
TEST_F(PrepareTest, WeightsThatWereOverwrittenAreBoundAnew) {
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(bindScale());
  EXPECT_FALSE(executor->run(20));
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(executor->run(20));
  expectResult(y);
}

/// makeInPlacePlan() with a second weight, which no step overwrites.
class OtherWeightTest : public ::testing::Test {
protected:
  /// Prepares, and binds the second weight anew.
  void bindAnew(bool isReadByPrepare) {
    Plan plan = makeInPlacePlan();
    if (isReadByPrepare)
      plan.prepare[0].args.push_back(
          Argument::ofTensor(static_cast<int64_t>(plan.tensors.size())));
    plan.tensors.push_back({"other", DType::F32, {kWidth}, TensorRole::Weight});
    auto made = createHostDevice(1);
    ASSERT_TRUE(made);
    device = std::move(*made);
    ModuleImage image;
    image.lookup = [](const std::string &) -> Result<HostKernelFn> {
      return &doubleInPlace;
    };
    auto created = Executor::create(plan, *device, image);
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
    ASSERT_TRUE(bind("scale", scale));
    EXPECT_EQ(executor->prepareWeights().status().message(),
              "prepareWeights: weight 'other' is not bound; bind it first");
    ASSERT_TRUE(bind("other", other));
    ASSERT_TRUE(executor->prepareWeights());
    ASSERT_TRUE(bind("other", more));
  }

  Status bind(const char *name, std::vector<float> &data) {
    return executor->bind(name, {data.data(), DType::F32, {kWidth}, {}});
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  std::vector<float> scale = std::vector<float>(kWidth, 1.0f);
  std::vector<float> other = std::vector<float>(kWidth), more = other;
};

TEST_F(OtherWeightTest, OfPrepareCallsForAllOfThem) {
  bindAnew(/*isReadByPrepare=*/true);
  EXPECT_EQ(executor->prepareWeights().status().message(),
            "prepareWeights: weight 'scale' was overwritten by an earlier "
            "preparation; bind it again with its values");
  ASSERT_TRUE(bind("scale", scale));
  EXPECT_TRUE(executor->prepareWeights());
}

TEST_F(OtherWeightTest, OfRunsAloneChangesNoPreparation) {
  bindAnew(/*isReadByPrepare=*/false);
  ASSERT_TRUE(executor->prepareWeights());
  EXPECT_EQ(scale[0], 2.0f);
  Result<TensorView> bound = executor->bound("other");
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->data, more.data());
}

TEST(PreparePlanTest, RefusesWhatCannotBeInPlace) {
  const struct {
    void (*change)(Plan &);
    const char *message;
  } cases[] = {
      {[](Plan &p) { p.tensors[H].inPlaceOf = Scale; },
       "tensors[4].in_place_of is 1; -1 (the role is workspace) is accepted"},
      {[](Plan &p) { p.tensors[Twice].inPlaceOf = X; },
       "tensors[2].in_place_of is 0; the index of a weight, or -1, is"},
      {[](Plan &p) { p.tensors[Twice].inPlaceOf = 9; },
       "tensors[2].in_place_of is 9; the index of a weight"},
      {[](Plan &p) { p.tensors[Twice].inPlaceOf = -2; },
       "tensors[2].in_place_of is -2; the index of a weight"},
      {[](Plan &p) { p.tensors[Twice].shape = {kWidth * 2}; },
       "tensors[2].in_place_of is 1, 'scale' of 16 bytes on multiples of 1; a "
       "weight without gaps of 32 bytes on multiples of 1 is"},
      {[](Plan &p) { p.tensors[Twice].alignment = 16; },
       "a weight without gaps of 16 bytes on multiples of 16 is"},
      {[](Plan &p) {
         p.tensors[Scale].shape = p.tensors[Twice].shape = {2, 2};
         p.tensors[Scale].strided = true;
       },
       "'scale' of 16 bytes on multiples of 1, with gaps; a weight without"},
      {[](Plan &p) {
         p.tensors.push_back(p.tensors[Twice]);
         p.tensors.back().name = "thrice";
         p.prepare[0].args.push_back(Argument::ofTensor(9));
       },
       "tensors[9].in_place_of is 1, which another one has; a weight of its"},
      {[](Plan &p) { p.prepare[0].args.push_back(Argument::ofTensor(Scale)); },
       "prepare[0] has 'scale' as an argument, which 'twice' overwrites; let "
       "it read 'twice'"},
      {[](Plan &p) {
         p.variants[1].steps[1].args[1] = Argument::ofTensor(Scale);
       },
       "variants[1].steps[1] has 'scale' as an argument, which 'twice'"},
  };
  EXPECT_TRUE(verifyPlan(makeInPlacePlan()));
  for (const auto &c : cases) {
    Plan plan = makeInPlacePlan();
    c.change(plan);
    Status status = verifyPlan(plan);
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.message << "\n  found: " << status.message();
  }
}

TEST_F(PrepareTest, MemoryOfAnotherWeightIsNotPreparedInPlace) {
  Plan plan = makeInPlacePlan();
  plan.tensors[Offset].role = TensorRole::Weight;
  ModuleImage image;
  image.lookup =
      [inner = makeImage()](const std::string &name) -> Result<HostKernelFn> {
    return name == "double_in_place" ? Result<HostKernelFn>(&doubleInPlace)
                                     : inner.lookup(name);
  };
  auto created = Executor::create(std::move(plan), *device, image);
  ASSERT_TRUE(created) << created.status().toString();
  executor = std::move(*created);
  ASSERT_TRUE(bindScale());
  ASSERT_TRUE(executor->bind("offset", {&scale[3], DType::I32, {1}, {}}));
  EXPECT_EQ(executor->prepareWeights().status().message(),
            "prepareWeights 'scale': is prepared in place, but shares "
            "memory with the weight 'offset'; bind a copy of one of them");
  EXPECT_EQ(scale, original);
  bindBatch(*executor, y);
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_TRUE(executor->run(20));
  expectResult(y);
}
