//===- TopKTest.cpp - cpu.top_k against the interpreter ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The interpreter's own tests hold it to hand-computed rows; here the compiled
// kernel is held to the interpreter, on random rows and on hard ones, and to
// some rows by hand.

#include "../Interpreter/TestModule.h"
#include "KernelHarness.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

using namespace moec;
using namespace moec::test;
using moec::interpreter::TensorRef;
using moec::interpreter::TestModule;
using moert::DType;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const char *const kSigmoid = R"({
  ^bb0(%x: f32):
    %one = arith.constant 1.0 : f32
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %r = arith.divf %one, %d : f32
    tile.yield %r : f32
})";

const char *const kSqrtSoftplus = R"({
  ^bb0(%x: f32):
    %limit = arith.constant 20.0 : f32
    %e = math.exp %x : f32
    %l = math.log1p %e : f32
    %big = arith.cmpf ogt, %x, %limit : f32
    %s = arith.select %big, %x, %l : f32
    %r = math.sqrt %s : f32
    tile.yield %r : f32
})";

struct TopKCase {
  std::string routing;
  int64_t numRoutes = 16;
  int64_t topK = 2;
  std::string score, weight;
  bool bias = false, scale = false, hash = false;
  int64_t numValid = -1;
  int64_t lanes = 8, rows = 4;
  std::string cpu = "host";
};

TensorRef refOf(const Array &array) {
  TensorRef ref;
  ref.data = array.data();
  ref.dtype = array.getDType();
  ref.shape.assign(array.getShape().begin(), array.getShape().end());
  return ref;
}

/// A kernel and its arguments; ids and weights are the last two.
struct Kernel {
  Kernel(const TopKCase &test, int64_t tokens)
      : test(test), tokens(tokens),
        logits(DType::F32, {tokens, test.numRoutes}),
        bias(DType::F32, {test.numRoutes}), scale(DType::F32, {test.numRoutes}),
        inputIds(DType::I32, {tokens}), table(DType::I32, {5, test.topK}),
        valid(DType::I32, {1}), ids(DType::I32, {tokens, test.topK}),
        weights(DType::F32, {tokens, test.topK}) {}

  std::string text() {
    std::string formals, operands;
    auto add = [&](const char *keyword, const char *name, Array &array,
                   bool dynamic) {
      std::string type = array.getType(dynamic);
      formals += std::string(name) + ": " + type + ", ";
      operands += " " + std::string(keyword) + "(" + name + " : " + type + ")";
      arguments.push_back(&array);
    };
    arguments.clear();
    add("logits", "%logits", logits, true);
    if (test.bias)
      add("selection_bias", "%bias", bias, false);
    if (test.scale)
      add("expert_scale", "%scale", scale, false);
    if (test.hash) {
      add("input_ids", "%input", inputIds, true);
      add("hash_table", "%table", table, false);
    }
    if (test.numValid >= 0) {
      valid.set(0, test.numValid);
      add("num_valid_tokens", "%valid", valid, false);
    }
    arguments.push_back(&ids);
    arguments.push_back(&weights);
    std::string idsType = ids.getType(true),
                weightsType = weights.getType(true);
    return "tile.kernel @route(" + formals + "%ids: " + idsType +
           ", %w: " + weightsType + ", %t: i64) {\n tile.top_k tokens(%t)" +
           operands + " outs(%ids, %w : " + idsType + ", " + weightsType +
           ") <top_k = " + std::to_string(test.topK) + test.routing + ">" +
           (test.score.empty() ? "" : " score " + test.score) +
           (test.weight.empty() ? "" : " weight " + test.weight) +
           " {config = #tile.cpu_top_k<lanes = " + std::to_string(test.lanes) +
           ", rows_per_cta = " + std::to_string(test.rows) +
           ">}\n tile.return\n}\n";
  }

  void runCompiled() {
    CompiledKernels kernels(text(), test.cpu);
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors() << text();
    ids.fill(77);
    weights.fill(77);
    int64_t grid = (tokens + test.rows - 1) / test.rows;
    kernels.run("route", grid, arguments, tokens);
  }

  void runInterpreted(Array &otherIds, Array &otherWeights) {
    TestModule module(text());
    ASSERT_TRUE(module.module);
    llvm::SmallVector<TensorRef> tensors;
    for (const Array *array : arguments)
      tensors.push_back(refOf(*array));
    tensors[tensors.size() - 2] = refOf(otherIds);
    tensors[tensors.size() - 1] = refOf(otherWeights);
    auto kernel = *module.module->getOps<tile::KernelOp>().begin();
    moert::Status status =
        interpreter::interpretKernel(kernel, tensors, tokens);
    ASSERT_TRUE(status.isOk()) << status.message();
  }

  const TopKCase &test;
  int64_t tokens;
  Array logits, bias, scale, inputIds, table, valid, ids, weights;
  std::vector<const Array *> arguments;
};

/// Random rows, then hard rows.
void fillLogits(Array &logits) {
  int64_t tokens = logits.getShape()[0], width = logits.getShape()[1];
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (int64_t i = 0; i < logits.size(); ++i)
    logits.set(i, normal(engine));
  int64_t row = tokens;
  auto fill = [&](auto value) {
    if (--row < 0)
      return;
    for (int64_t e = 0; e < width; ++e)
      logits.set(row * width + e, value(e));
  };
  fill([](int64_t) { return 0.0f; });
  fill([](int64_t) { return 1.5f; });
  fill([](int64_t e) { return e % 3 ? 0.25f : -0.5f; });
  fill([](int64_t e) { return e % 2 ? 0.0f : -0.0f; });
  fill([](int64_t e) { return e == 3 ? kNaN : float(e % 5); });
  fill([](int64_t e) { return e % 4 == 1 ? kInf : float(e % 7); });
  fill([](int64_t e) { return e % 4 ? -kInf : float(e % 7); });
  fill([](int64_t) { return -kInf; });
  fill([](int64_t) { return kNaN; });
  fill([](int64_t e) { return e % 3 == 0 ? kNaN : e % 3 == 1 ? kInf : -kInf; });
  fill([](int64_t e) { return e == 5 ? 1.0f : kNaN; });
  fill([](int64_t e) { return float(e) * 100 - 700; });
  fill([](int64_t e) { return 10.0f - 0.05f * float(e % 11); });
  fill([](int64_t e) { return -10.0f - 0.05f * float(e % 11); });
}

void compareWithInterpreter(const TopKCase &test) {
  int64_t tokens = 61;
  Kernel kernel(test, tokens);
  fillLogits(kernel.logits);
  kernel.bias.randomize(2);
  kernel.scale.randomize(3);
  for (int64_t t = 0; t < tokens; ++t)
    kernel.inputIds.set(t, t % 8 - 1);
  for (int64_t i = 0; i < kernel.table.size(); ++i)
    kernel.table.set(i, (i * 7) % (test.numRoutes + 2) - (i % 5 == 4));
  kernel.runCompiled();
  Array ids(DType::I32, {tokens, test.topK});
  Array weights(DType::F32, {tokens, test.topK});
  kernel.runInterpreted(ids, weights);
  int failures = 0;
  for (int64_t t = 0; t < tokens && failures < 5; ++t)
    for (int64_t j = 0; j < test.topK && failures < 5; ++j) {
      double bound = 4e-6 * std::fabs(weights.get(t, j));
      bool isSame =
          kernel.ids.get(t, j) == ids.get(t, j) &&
          std::fabs(kernel.weights.get(t, j) - weights.get(t, j)) <= bound;
      if (isSame)
        continue;
      ++failures;
      ADD_FAILURE() << "token " << t << " slot " << j << ": id "
                    << kernel.ids.get(t, j) << " weight "
                    << kernel.weights.get(t, j) << ", expected "
                    << ids.get(t, j) << " and " << weights.get(t, j);
    }
}

/// Every number of experts relative to full vectors, for both vector lengths.
void compareShapes(TopKCase test, std::vector<int64_t> sizes) {
  for (int64_t numRoutes : sizes)
    for (int64_t lanes : {4, 8, 16}) {
      SCOPED_TRACE(std::to_string(numRoutes) + " experts, " +
                   std::to_string(lanes) + " lanes");
      test.numRoutes = numRoutes;
      test.lanes = lanes;
      compareWithInterpreter(test);
    }
}

} // namespace

TEST(CpuTopK, Identity) {
  TopKCase test;
  test.topK = 3;
  compareShapes(test, {3, 8, 17, 128, 1024});
}

TEST(CpuTopK, Softmax) {
  TopKCase test;
  test.topK = 8;
  test.routing = ", softmax = all, renormalize = true";
  compareShapes(test, {8, 60, 128});
  test.routing = ", softmax = all";
  compareShapes(test, {9, 512});
}

TEST(CpuTopK, SigmoidWithBiasAndGroups) {
  TopKCase test;
  test.topK = 8;
  test.score = kSigmoid;
  test.bias = true;
  test.routing = ", num_groups = 8, topk_groups = 4, group_score = top2_sum, "
                 "renormalize = true, renormalize_epsilon = 1.0e-20 : f32, "
                 "scale = 2.5 : f32, nonfinite = neg_inf";
  compareShapes(test, {16, 40, 128, 256});
  test.routing = ", num_groups = 4, topk_groups = 2, group_score = max, "
                 "nonfinite = neg_inf";
  compareShapes(test, {16, 20, 160});
}

TEST(CpuTopK, GroupsWithoutBias) {
  TopKCase test;
  test.topK = 2;
  test.routing = ", softmax = all, num_groups = 4, topk_groups = 1, "
                 "nonfinite = neg_inf";
  compareShapes(test, {8, 12, 64});
  test.routing = ", num_groups = 4, topk_groups = 3";
  compareShapes(test, {4, 64});
}

TEST(CpuTopK, PerGroup) {
  TopKCase test;
  test.topK = 6;
  test.routing = ", select = per_group, num_groups = 3, softmax = all, "
                 "nonfinite = neg_inf";
  compareShapes(test, {6, 15, 24, 48});
}

TEST(CpuTopK, SelectedSoftmax) {
  TopKCase test;
  test.topK = 4;
  test.routing = ", softmax = selected, nonfinite = neg_inf";
  compareShapes(test, {4, 32, 128});
  test.routing = ", softmax = selected, nonfinite = lowest";
  test.scale = true;
  compareShapes(test, {32});
  test.routing = ", softmax = selected, renormalize = true";
  compareShapes(test, {32});
}

TEST(CpuTopK, WeightRegion) {
  TopKCase test;
  test.topK = 1;
  test.weight = kSigmoid;
  compareShapes(test, {1, 16, 17});
}

TEST(CpuTopK, SqrtSoftplus) {
  TopKCase test;
  test.topK = 6;
  test.score = kSqrtSoftplus;
  test.bias = true;
  test.scale = true;
  test.routing = ", renormalize = true, scale = 1.5 : f32, "
                 "nonfinite = lowest";
  compareShapes(test, {64, 256});
}

// field-bug: sglang#30079, vllm#39391, colibri#558
TEST(CpuTopK, NonFiniteRules) {
  for (const char *rule : {"zero", "neg_inf", "lowest"})
    for (bool bias : {false, true}) {
      SCOPED_TRACE(rule);
      TopKCase test;
      test.topK = 5;
      test.bias = bias;
      test.routing = std::string(", nonfinite = ") + rule;
      compareShapes(test, {16, 21});
      test.weight = kSigmoid;
      test.routing += ", renormalize = true";
      compareShapes(test, {16});
    }
}

TEST(CpuTopK, Hash) {
  TopKCase test;
  test.topK = 3;
  test.hash = true;
  test.scale = true;
  test.routing = ", select = hash, softmax = all, renormalize = true";
  compareShapes(test, {8, 20});
  test.routing = ", select = hash, nonfinite = lowest";
  test.score = kSqrtSoftplus;
  compareShapes(test, {20});
}

TEST(CpuTopK, SparseMixer) {
  TopKCase test;
  test.routing = ", select = sparsemixer, nonfinite = neg_inf";
  compareShapes(test, {2, 16, 19});
  test.scale = true;
  test.routing += ", renormalize = true, scale = 2.0 : f32";
  compareShapes(test, {16});
}

TEST(CpuTopK, ManySlots) {
  TopKCase test;
  test.topK = 32;
  test.routing = ", softmax = all, renormalize = true";
  compareShapes(test, {32, 1000});
}

TEST(CpuTopK, PaddingRows) {
  for (int64_t numValid : {0, 1, 30, 61, 100}) {
    TopKCase test;
    test.topK = 3;
    test.routing = ", softmax = all";
    test.numValid = numValid;
    compareWithInterpreter(test);
    test.numRoutes = 13;
    test.rows = 1;
    compareWithInterpreter(test);
    test.rows = 100;
    compareWithInterpreter(test);
  }
}

TEST(CpuTopK, BaselineCpu) {
  TopKCase test;
  test.topK = 8;
  test.numRoutes = 128;
  test.cpu = "x86-64-v3";
  test.routing = ", softmax = all, renormalize = true";
  compareWithInterpreter(test);
  Kernel kernel(test, 1);
  CompiledKernels compiled(kernel.text(), test.cpu);
  ASSERT_TRUE(compiled.isOk()) << compiled.getErrors();
  std::string assembly = compiled.getAssembly();
  EXPECT_NE(assembly.find("ymm"), std::string::npos);
  EXPECT_EQ(assembly.find("zmm"), std::string::npos);
  // The entry that the runtime calls comes first, and calls the body.
  std::string body = assembly.substr(assembly.find("route__body:"));
  EXPECT_EQ(body.find("call"), std::string::npos) << body;
}

TEST(CpuTopK, RowsByHand) {
  TopKCase test;
  test.numRoutes = 4;
  test.bias = true;
  test.scale = true;
  test.routing = ", renormalize = true, scale = 10.0 : f32";
  Kernel kernel(test, 2);
  // Expert 3 is selected because of its bias, which its weight excludes. The
  // tie between 1 and 2 goes to 1.
  double logits[] = {0, 3, 3, 1, 7, 1, kNaN, -1};
  for (int64_t i = 0; i < 8; ++i)
    kernel.logits.set(i, logits[i]);
  kernel.bias.fill(0);
  kernel.bias.set(3, 9);
  kernel.scale.fill(1);
  kernel.scale.set(1, 2);
  kernel.runCompiled();
  EXPECT_EQ(kernel.ids.get(0, 0), 3);
  EXPECT_EQ(kernel.ids.get(0, 1), 1);
  EXPECT_EQ(kernel.weights.get(0, 0), 2.5);
  EXPECT_EQ(kernel.weights.get(0, 1), 15);
  EXPECT_EQ(kernel.ids.get(1, 0), 3);
  EXPECT_EQ(kernel.ids.get(1, 1), 0);
  EXPECT_NEAR(kernel.weights.get(1, 0), -10.0 / 6, 1e-6);
  EXPECT_NEAR(kernel.weights.get(1, 1), 70.0 / 6, 1e-5);
}

TEST(CpuTopK, RefusesAConfigThatItCannotObey) {
  TopKCase test;
  test.lanes = 5;
  CompiledKernels lanes(Kernel(test, 1).text());
  EXPECT_NE(lanes.getErrors().find("lanes"), std::string::npos)
      << lanes.getErrors();
  test.lanes = 8;
  test.rows = 0;
  CompiledKernels rows(Kernel(test, 1).text());
  EXPECT_NE(rows.getErrors().find("rows"), std::string::npos)
      << rows.getErrors();
}

TEST(CpuTopK, TakesMillisecondsForManyTokens) {
  TopKCase test;
  test.numRoutes = 128;
  test.topK = 8;
  test.rows = 8;
  test.routing = ", softmax = all, renormalize = true";
  Kernel kernel(test, 4096);
  fillLogits(kernel.logits);
  CompiledKernels kernels(kernel.text());
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  double best = 1;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    kernels.run("route", 4096 / 8, kernel.arguments, 4096);
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  RecordProperty("microseconds", std::to_string(best * 1e6));
}
