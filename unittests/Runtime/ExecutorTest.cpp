//===- ExecutorTest.cpp - tests of running plans ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Executor.h"
#include "TestPlan.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

using namespace moert;
using namespace moert::test;

#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    const Status asserted = (expression);                                      \
    ASSERT_TRUE(asserted) << asserted.toString();                              \
  } while (false)

namespace {

/// A host device and the tensors of the test plan.
class ExecutorTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> created = createHostDevice(3);
    ASSERT_TRUE(created);
    device = std::move(*created);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 11) - 4;
  }

  std::unique_ptr<Executor> makeExecutor(ExecutorOptions options = {}) {
    Result<std::unique_ptr<Executor>> created =
        Executor::create(makePlan(), *device, makeImage(), options);
    EXPECT_TRUE(created) << created.status().toString();
    return created ? std::move(*created) : nullptr;
  }

  void bindAll(Executor &executor) {
    ASSERT_OK(executor.bind("scale", view(scale, {kWidth})));
    bindBatch(executor);
  }

  void bindBatch(Executor &executor) {
    ASSERT_OK(executor.bind("x", view(x, {100, kWidth})));
    ASSERT_OK(executor.bind("y", view(y, {100, kWidth})));
    ASSERT_OK(executor.bind("offset", {&offset, DType::I32, {1}, {}}));
  }

  TensorView view(std::vector<float> &data, std::vector<int64_t> shape) {
    return {data.data(), DType::F32, std::move(shape), {}};
  }

  void expectResult(int64_t tokens) {
    for (int64_t t = 0; t < 100; ++t)
      for (int64_t c = 0; c < kWidth; ++c) {
        float found = y[t * kWidth + c];
        if (t < tokens)
          ASSERT_EQ(found, expectedY(x, scale, offset, t, c, tokens))
              << tokens << " tokens, row " << t;
        else
          ASSERT_EQ(found, -1.0f) << "row beyond the tokens was written";
      }
  }

  std::unique_ptr<Device> device;
  std::vector<float> x = std::vector<float>(100 * kWidth);
  std::vector<float> y = std::vector<float>(100 * kWidth, -1.0f);
  std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f};
  int32_t offset = 3;
};

} // namespace

// field-bug: llama.cpp#24937, llama.cpp#24174, ik_llama.cpp#2484
TEST_F(ExecutorTest, RunsEveryTokenCountOfBothVariants) {
  auto executor = makeExecutor();
  bindAll(*executor);
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_OK(report.status());
  EXPECT_EQ(report->bytes, 16);
  EXPECT_GE(report->seconds, 0);
  // Also descending, so that the workspace is larger than needed.
  for (int64_t tokens : {1, 3, 4, 100, 17, 2, 0}) {
    std::fill(y.begin(), y.end(), -1.0f);
    ASSERT_OK(executor->run(tokens));
    ASSERT_OK(executor->synchronize());
    expectResult(tokens);
  }
}

TEST_F(ExecutorTest, ZeroTokensNeedNoMemory) {
  auto executor = makeExecutor();
  ASSERT_OK(executor->bind("scale", view(scale, {kWidth})));
  ASSERT_OK(executor->bind("offset", {&offset, DType::I32, {1}, {}}));
  ASSERT_OK(executor->bind("x", {nullptr, DType::F32, {0, kWidth}, {}}));
  ASSERT_OK(executor->bind("y", {nullptr, DType::F32, {0, kWidth}, {}}));
  ASSERT_OK(executor->prepareWeights().status());
  EXPECT_EQ(*executor->workspaceBytes(0), 0);
  EXPECT_TRUE(executor->run(0));
}

TEST_F(ExecutorTest, PlanWithoutPrepareStepsIsReadyAtOnce) {
  Plan plan = makePlan();
  plan.prepare.clear();
  plan.tensors[Twice].role = TensorRole::Weight;
  auto executor = Executor::create(plan, *device, makeImage());
  ASSERT_OK(executor.status());
  bindAll(**executor);
  std::vector<float> twice = {1.0f, -2.0f, 4.0f, 0.5f};
  ASSERT_OK((*executor)->bind("twice", view(twice, {kWidth})));
  Result<PrepareReport> report = (*executor)->prepareWeights();
  ASSERT_OK(report.status());
  EXPECT_EQ(report->bytes, 0);
  ASSERT_OK((*executor)->run(5));
  expectResult(5);
}

TEST_F(ExecutorTest, RebindingAWeightCallsForPreparation) {
  auto executor = makeExecutor();
  bindAll(*executor);
  EXPECT_EQ(executor->run(2).message(), "run(2): the weights are not prepared; "
                                        "prepare them first");
  ASSERT_OK(executor->prepareWeights().status());
  ASSERT_OK(executor->run(2));
  scale = {1.0f, 2.0f, 3.0f, 4.0f};
  ASSERT_OK(executor->bind("scale", view(scale, {kWidth})));
  EXPECT_FALSE(executor->run(2));
  ASSERT_OK(executor->prepareWeights().status());
  ASSERT_OK(executor->run(2));
  expectResult(2);
}

/// Binding an input with the same view changes nothing, though its contents may
/// have changed; other strides of the same memory are another binding.
TEST_F(ExecutorTest, BindingTheSameAgainIsChecked) {
  std::unique_ptr<Executor> executor = makeExecutor();
  bindAll(*executor);
  ASSERT_TRUE(executor->prepareWeights());
  ASSERT_OK(executor->run(20));
  x[0] += 1;
  bindBatch(*executor);
  ASSERT_OK(executor->run(20));
  expectResult(20);
  TensorView wrong = view(x, {100, kWidth});
  wrong.dtype = DType::I32;
  EXPECT_FALSE(executor->bind("x", wrong));
  wrong = view(x, {100, kWidth});
  wrong.strides = {kWidth + 1, 1};
  EXPECT_FALSE(executor->bind("x", wrong));
  wrong.strides = {1};
  EXPECT_FALSE(executor->bind("x", wrong));
  ASSERT_OK(executor->run(20));
}

/// The layout of a token count is reused, even after arguments moved.
TEST_F(ExecutorTest, ArgumentsMayMoveBetweenRuns) {
  auto executor = makeExecutor();
  bindAll(*executor);
  ASSERT_OK(executor->prepareWeights().status());
  std::vector<std::vector<float>> left;
  for (int64_t tokens : {20, 20, 3, 20, 100, 20}) {
    left.push_back(std::exchange(x, std::vector<float>(x)));
    std::fill(left.back().begin(), left.back().end(), NAN);
    left.push_back(std::exchange(y, std::vector<float>(y.size(), -1.0f)));
    bindBatch(*executor);
    ASSERT_OK(executor->run(tokens));
    expectResult(tokens);
  }
  // view() still refers to the latest run.
  std::vector<float> other(y.size(), -1.0f);
  ASSERT_OK(executor->bind("y", view(other, {100, kWidth})));
  EXPECT_EQ(executor->view("y")->data, y.data());
  ASSERT_OK(executor->run(20));
  EXPECT_EQ(executor->view("y")->data, other.data());
  std::swap(y, other);
  expectResult(20);
}

/// An address is checked even if everything else is unchanged.
TEST_F(ExecutorTest, MovedArgumentsAreChecked) {
  auto executor = makeExecutor();
  bindAll(*executor);
  ASSERT_OK(executor->prepareWeights().status());
  ASSERT_OK(executor->run(20));
  EXPECT_FALSE(executor->bind("x", {nullptr, DType::F32, {100, kWidth}, {}}));
  char *odd = reinterpret_cast<char *>(x.data()) + 1;
  EXPECT_FALSE(executor->bind("x", {odd, DType::F32, {100, kWidth}, {}}));
  ASSERT_OK(executor->run(20));
  expectResult(20);
}

// field-bug: vllm#50338
TEST_F(ExecutorTest, CallerMayOwnTheWorkspace) {
  auto executor = makeExecutor();
  bindAll(*executor);
  ASSERT_OK(executor->prepareWeights().status());
  int64_t bytes = *executor->workspaceBytes(20);
  auto buffer = device->allocate(bytes + 8, kWorkspaceAlignment);
  ASSERT_TRUE(buffer);
  auto *memory = static_cast<uint8_t *>((*buffer)->data());
  memset(memory + bytes, 0x5A, 8);
  ASSERT_OK(executor->run(20, {memory, bytes}));
  expectResult(20);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(memory[bytes + i], 0x5A) << "written past the workspace";

  EXPECT_EQ(executor->run(20, {memory, bytes - 1}).message(),
            "run: the workspace has " + std::to_string(bytes - 1) +
                " bytes, 20 tokens need " + std::to_string(bytes) +
                "; allocate what workspaceBytes() returns");
  EXPECT_NE(executor->run(20, {memory + 8, bytes})
                .message()
                .find("is not a multiple of 256"),
            std::string::npos);
  EXPECT_FALSE(executor->run(20, {nullptr, bytes}));
}

TEST_F(ExecutorTest, RunNamesWhatIsMissing) {
  auto executor = makeExecutor();
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.status().message(),
            "prepareWeights: weight 'scale' is not bound; bind it first");
  ASSERT_OK(executor->bind("scale", view(scale, {kWidth})));
  ASSERT_OK(executor->prepareWeights().status());
  EXPECT_EQ(executor->run(2).message(),
            "run(2): input 'x' is not bound; bind it first");
  bindAll(*executor);
  ASSERT_OK(executor->prepareWeights().status());
  ASSERT_OK(executor->bind("y", view(y, {5, kWidth})));
  EXPECT_EQ(executor->run(6).message(),
            "run(6): tensor 'y' is bound with 5 rows, 6 are needed; bind a "
            "larger one");
  EXPECT_TRUE(executor->run(5));
  for (int64_t tokens : {-1, 101}) {
    Status status = executor->run(tokens);
    EXPECT_EQ(status.code(), StatusCode::OutOfRange);
    EXPECT_NE(status.message().find("0 to max_tokens = 100 tokens"),
              std::string::npos);
  }
}

TEST_F(ExecutorTest, BindErrorsNameTensorExpectedAndFound) {
  auto executor = makeExecutor();
  float *data = x.data();
  struct Case {
    const char *name;
    TensorView view;
    const char *message;
  } cases[] = {
      {"hidden",
       {data, DType::F32, {1}, {}},
       "bind: the plan has no tensor 'hidden'; it has x, scale, offset, y"},
      {"h",
       {data, DType::F32, {8, 4}, {}},
       "bind 'h': a workspace tensor belongs to the executor; bind one of x, "
       "scale, offset, y"},
      {"h", {data, DType::F32, {4}, {}}, "bind 'h': a workspace tensor"},
      {"x",
       {data, DType::BF16, {8, 4}, {}},
       "bind 'x': dtype f32 expected, bf16 found; convert the tensor"},
      {"x",
       {data, DType::F32, {8}, {}},
       "bind 'x': shape [tokens, 4] expected, [8] found; the ranks differ"},
      {"x",
       {data, DType::F32, {8, 5}, {}},
       "bind 'x': shape [tokens, 4] expected, [8, 5] found; dimension 1 "
       "differs"},
      {"x",
       {data, DType::F32, {101, 4}, {}},
       "found; dimension 0 is at most 100 (max_tokens is 100)"},
      {"x", {data, DType::F32, {-1, 4}, {}}, "dimension 0 differs"},
      {"scale",
       {data, DType::F32, {3}, {}},
       "bind 'scale': shape [4] expected, [3] found; dimension 0 differs"},
      {"x",
       {data, DType::F32, {8, 4}, {4}},
       "bind 'x': strides [4] found for shape [8, 4]; one per dimension"},
      {"x",
       {data, DType::F32, {8, 4}, {1, 8}},
       "bind 'x': strides [4, 1] (contiguous) expected, [1, 8] found; make "
       "the tensor contiguous"},
      {"x", {data, DType::F32, {8, 4}, {5, 1}}, "[5, 1] found"},
      {"x", {nullptr, DType::F32, {8, 4}, {}}, "the data pointer is null"},
      {"x",
       {reinterpret_cast<char *>(data) + 2, DType::F32, {8, 4}, {}},
       "bind 'x': an address aligned to 4 bytes expected, "},
      {"y",
       {data + 1, DType::F32, {8, 4}, {}},
       "bind 'y': an address aligned to 16 bytes expected, "},
  };
  for (const Case &c : cases) {
    Status status = executor->bind(c.name, c.view);
    EXPECT_FALSE(status) << c.message;
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << status.message();
  }
  // Strides that no element uses may have any value.
  EXPECT_TRUE(executor->bind("x", {data, DType::F32, {1, 4}, {77, 1}}));
  EXPECT_TRUE(executor->bind("x", {data, DType::F32, {0, 4}, {-3, 9}}));
}

TEST_F(ExecutorTest, KeepAllShowsEveryWorkspaceTensor) {
  ExecutorOptions options;
  options.keepAll = true;
  auto executor = makeExecutor(options);
  bindAll(*executor);
  EXPECT_EQ(executor->view("h").status().code(), StatusCode::Unavailable);
  ASSERT_OK(executor->prepareWeights().status());
  ASSERT_OK(executor->run(6));
  Result<TensorView> h = executor->view("h"), z = executor->view("z");
  ASSERT_OK(h.status());
  ASSERT_OK(z.status());
  EXPECT_EQ(h->shape, (std::vector<int64_t>{12, kWidth}));
  EXPECT_NE(h->data, z->data);
  auto *hData = static_cast<const float *>(h->data);
  auto *zData = static_cast<const float *>(z->data);
  for (int64_t i = 0; i < 12 * kWidth; ++i)
    EXPECT_EQ(zData[i], (hData[i] + 1) * (hData[i] + 1));
  EXPECT_EQ(hData[0], x[0] * 2 * scale[0]);
  EXPECT_EQ(executor->view("y")->data, y.data());
  EXPECT_EQ(static_cast<const float *>(executor->view("twice")->data)[1],
            -2.0f);
  EXPECT_EQ(executor->view("none").status().code(), StatusCode::NotFound);

  ASSERT_OK(executor->run(2));
  EXPECT_EQ(executor->view("s").status().message(),
            "view 's': the variant for 2 tokens does not use this tensor");
}

TEST_F(ExecutorTest, PoisonShowsWhatNobodyWrites) {
  ExecutorOptions options;
  options.poison = true;
  Plan plan = makePlan();
  // Without the launch that makes z, its poison must reach y.
  plan.variants[0].steps.erase(plan.variants[0].steps.begin() + 2);
  plan.tensors[Z].slot = plan.numSlots++;
  auto executor = Executor::create(plan, *device, makeImage(), options);
  ASSERT_OK(executor.status());
  bindAll(**executor);
  ASSERT_OK((*executor)->prepareWeights().status());
  ASSERT_OK((*executor)->run(2));
  for (int64_t i = 0; i < 2 * kWidth; ++i)
    EXPECT_TRUE(std::isnan(y[i]));
  EXPECT_EQ(y[2 * kWidth], -1.0f);
  ASSERT_OK((*executor)->run(7));
  expectResult(7);
}

TEST_F(ExecutorTest, PoisonCoversOutputs) {
  ExecutorOptions options;
  options.poison = true;
  Plan plan = makePlan();
  plan.kernels[5].grid = 1; // Skips all rows of y but the first.
  auto executor = Executor::create(plan, *device, makeImage(), options);
  ASSERT_OK(executor.status());
  bindAll(**executor);
  ASSERT_OK((*executor)->prepareWeights().status());
  ASSERT_OK((*executor)->run(3));
  EXPECT_FALSE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[kWidth]));
  EXPECT_TRUE(std::isnan(y[3 * kWidth - 1]));
  EXPECT_EQ(y[3 * kWidth], -1.0f);
}

TEST_F(ExecutorTest, ClonesServeOverlappingMicroBatches) {
  auto executor = makeExecutor();
  bindAll(*executor);
  ASSERT_OK(executor->prepareWeights().status());
  auto clone = executor->clone();
  ASSERT_OK(clone.status());
  EXPECT_EQ((*clone)->run(4).message(),
            "run(4): input 'x' is not bound; bind it first");
  std::vector<float> otherY(y.size(), -1.0f);
  bindBatch(**clone);
  ASSERT_OK((*clone)->bind("y", view(otherY, {100, kWidth})));
  std::thread other([&] {
    for (int i = 0; i < 200; ++i)
      ASSERT_OK((*clone)->run(90));
  });
  for (int i = 0; i < 200; ++i)
    ASSERT_OK(executor->run(50));
  other.join();
  expectResult(50);
  y = otherY;
  expectResult(90);
  // The clone keeps the shared state alive.
  executor.reset();
  ASSERT_OK((*clone)->run(90));
}

TEST_F(ExecutorTest, CreateRefusesWhatCannotRun) {
  Plan plan = makePlan();
  plan.target = "sm_90a";
  auto wrongTarget = Executor::create(plan, *device, makeImage());
  ASSERT_FALSE(wrongTarget);
  EXPECT_NE(wrongTarget.status().message().find(
                "target 'sm_90a' does not run on the host device"),
            std::string::npos);

  plan = makePlan();
  plan.kernels[1].name = "missing";
  auto missing = Executor::create(plan, *device, makeImage());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), StatusCode::NotFound);
  EXPECT_EQ(missing.status().message(), "kernel 'missing': no such symbol");

  plan = makePlan();
  plan.maxTokens = 0;
  EXPECT_FALSE(Executor::create(plan, *device, makeImage()));
}
