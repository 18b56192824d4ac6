//===- RouteTest.cpp - moe.route by the interpreter -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModule.h"

#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::interpreter;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// Routes one token. `operands` are `selection_bias(...)` and so on of the
/// values %bias, %scale, %input, %table and %valid.
struct RouteTest {
  std::string routing = "top_k = 2";
  std::string operands;
  std::string regions;
  std::vector<float> bias, scale;
  std::vector<int32_t> input = {0}, table = {0}, valid = {1};

  Routed run(std::vector<float> logits, int64_t k = 2) {
    int64_t r = logits.size();
    bias.resize(r);
    scale.resize(r, 1.0f);
    table.resize((table.size() + k - 1) / k * k);
    int64_t rows = table.size() / k;
    std::string wide = "x" + std::to_string(r) + "xf32>";
    std::string row = "tensor<" + std::to_string(r) + "xf32>";
    std::string many = "x" + std::to_string(k);
    std::string tableType = "tensor<" + std::to_string(rows) + many + "xi32>";
    std::string results =
        "tensor<?" + many + "xi32>, tensor<?" + many + "xf32>";
    auto operand = [&](const char *name, const char *value,
                       const std::string &type) {
      if (operands.find(name) == std::string::npos)
        return std::string();
      return " " + std::string(name) + "(" + value + " : " + type + ")";
    };
    TestModule test("func.func @f(%logits: tensor<?" + wide +
                    ", %bias: " + row + ", %scale: " + row +
                    ", %input: tensor<?xi32>, %table: " + tableType +
                    ", %valid: tensor<1xi32>) -> (" + results +
                    ") { %i, %w = moe.route %logits : tensor<?" + wide +
                    operand("selection_bias", "%bias", row) +
                    operand("expert_scale", "%scale", row) +
                    operand("input_ids", "%input", "tensor<?xi32>") +
                    operand("hash_table", "%table", tableType) +
                    operand("num_valid_tokens", "%valid", "tensor<1xi32>") +
                    " <" + routing + "> " + regions + " -> " + results +
                    "\n return %i, %w : " + results + " }");
    std::vector<Tensor> out =
        test.run({view(logits, {1, r}), view(bias, {r}), view(scale, {r}),
                  view(input, {1}), view(table, {rows, k}), view(valid, {1})});
    if (out.size() != 2)
      return {};
    return {valuesOf<int32_t>(out[0]), valuesOf<float>(out[1])};
  }
};

const char *const kSigmoid = R"({
  ^bb0(%l: f32):
    %one = arith.constant 1.0 : f32
    %n = arith.negf %l : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %r = arith.divf %one, %d : f32
    moe.yield %r : f32
})";

using Ids = std::vector<int32_t>;
using Weights = std::vector<float>;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void expectNear(const Weights &found, const Weights &expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6f * std::fabs(expected[i]))
        << "weight " << i;
}

} // namespace

TEST(Route, OrdersByKeyThenByIndex) {
  RouteTest test;
  Routed out = test.run({1, 3, 3, 2});
  EXPECT_EQ(out.ids, Ids({1, 2}));
  EXPECT_EQ(out.weights, Weights({3, 3}));
  EXPECT_EQ(test.run({5, 5, 5, 5}).ids, Ids({0, 1}));
  EXPECT_EQ(test.run({-0.0f, 0.0f, -1, 0}).ids, Ids({0, 1}));
}

TEST(Route, SoftmaxOverAll) {
  RouteTest test;
  test.routing = "top_k = 2, softmax = all";
  Routed out = test.run({0, std::log(2.0f), std::log(5.0f)});
  EXPECT_EQ(out.ids, Ids({2, 1}));
  expectNear(out.weights, {0.625f, 0.25f});
  test.routing = "top_k = 2, softmax = all, renormalize = true";
  expectNear(test.run({0, std::log(2.0f), std::log(5.0f)}).weights,
             {5.0f / 7, 2.0f / 7});
  // A NaN or +inf spoils the whole row; zero makes all scores 0.
  EXPECT_EQ(test.run({1, kNaN, 2}).ids, Ids({0, 1}));
  EXPECT_EQ(test.run({1, kInf, 2}).weights, Weights({0, 0}));
  EXPECT_EQ(test.run({-kInf, 1, -kInf}).weights, Weights({1, 0}));
}

TEST(Route, BiasSelectsAndDoesNotWeigh) {
  RouteTest test;
  test.operands = "selection_bias";
  test.bias = {10, 0, 0, 20};
  test.regions = std::string("score ") + kSigmoid;
  Routed out = test.run({-1, 4, 3, -2});
  EXPECT_EQ(out.ids, Ids({3, 0}));
  expectNear(out.weights, {sigmoid(-2), sigmoid(-1)});
}

TEST(Route, ExpertScaleAndScaleComeLast) {
  RouteTest test;
  test.operands = "expert_scale";
  test.scale = {1, 2, 3, 4};
  test.routing = "top_k = 2, renormalize = true, "
                 "renormalize_epsilon = 1.0 : f32, scale = 10.0 : f32";
  // (2, 1) / (3 + 1), times (3, 2), times 10.
  EXPECT_EQ(test.run({0, 1, 2, -1}).weights, Weights({15, 5}));
  // A denominator of 0 counts as 1.
  test.routing = "top_k = 2, renormalize = true";
  EXPECT_EQ(test.run({1, -1, -2, -3}).weights, Weights({1, -2}));
}

TEST(Route, WeightRegionAndSelectedSoftmax) {
  RouteTest test;
  test.regions = std::string("weight ") + kSigmoid;
  expectNear(test.run({0, 1, 2, -1}).weights, {sigmoid(2), sigmoid(1)});
  EXPECT_EQ(test.run({kNaN, 1, 2, -1}, 2).ids, Ids({2, 1}));
  RouteTest selected;
  selected.routing = "top_k = 2, softmax = selected, nonfinite = neg_inf";
  expectNear(selected.run({0, std::log(2.0f), std::log(6.0f)}).weights,
             {0.75f, 0.25f});
  EXPECT_EQ(selected.run({kNaN, 7, kInf}).ids, Ids({1, 0}));
  EXPECT_EQ(selected.run({kNaN, 7, kInf}).weights, Weights({1, 0}));
}

TEST(Route, NonFiniteZero) {
  RouteTest test;
  test.operands = "selection_bias";
  test.bias = {0, 5, 0, 0};
  Routed out = test.run({kInf, kNaN, 3, -kInf});
  EXPECT_EQ(out.ids, Ids({1, 2}));
  EXPECT_EQ(out.weights, Weights({0, 3}));
  // The weight is 0 whatever the region would make of 0.
  test.regions = std::string("weight ") + kSigmoid;
  expectNear(test.run({kInf, kNaN, 3, -kInf}).weights, {0, sigmoid(3)});
}

TEST(Route, NonFiniteNegInf) {
  RouteTest test;
  test.routing = "top_k = 2, nonfinite = neg_inf, scale = 3.0 : f32, "
                 "renormalize = true";
  Routed out = test.run({kInf, kNaN, -3, -kInf});
  EXPECT_EQ(out.ids, Ids({2, 0}));
  EXPECT_EQ(out.weights, Weights({3, 0}));
  out = test.run({kInf, kNaN, -kInf, kNaN});
  EXPECT_EQ(out.ids, Ids({0, 1}));
  EXPECT_EQ(out.weights, Weights({0.5f, 0.5f}));
}

TEST(Route, NonFiniteLowest) {
  RouteTest test;
  test.routing = "top_k = 2, nonfinite = lowest";
  Routed out = test.run({kInf, kNaN, -3, -kInf});
  EXPECT_EQ(out.ids, Ids({2, 0}));
  EXPECT_EQ(out.weights, Weights({-3, 0}));
  out = test.run({kInf, -2e30f, kNaN});
  EXPECT_EQ(out.ids, Ids({0, 2}));
  EXPECT_EQ(out.weights, Weights({0, 0}));
}

TEST(Route, Groups) {
  RouteTest test;
  test.routing = "top_k = 2, num_groups = 3, topk_groups = 1";
  EXPECT_EQ(test.run({5, 0, 4, 4, 1, 2}).ids, Ids({0, 1}));
  test.routing = "top_k = 2, num_groups = 3, topk_groups = 1, "
                 "group_score = top2_sum";
  EXPECT_EQ(test.run({5, 0, 4, 4, 1, 2}).ids, Ids({2, 3}));
  // Equal groups: the lowest stays.
  EXPECT_EQ(test.run({1, 2, 2, 1, 0, 3}).ids, Ids({1, 0}));
  test.routing = "top_k = 2, num_groups = 3, topk_groups = 2";
  EXPECT_EQ(test.run({5, 0, 3, 3, 6, 2}).ids, Ids({4, 0}));
}

TEST(Route, PerGroup) {
  RouteTest test;
  test.routing = "top_k = 4, num_groups = 2, select = per_group";
  EXPECT_EQ(test.run({1, 3, 2, 9, 7, 8}, 4).ids, Ids({1, 2, 3, 5}));
}

TEST(Route, Hash) {
  RouteTest test;
  test.routing = "top_k = 2, select = hash, renormalize = true";
  test.operands = "input_ids hash_table";
  test.table = {0, 1, 3, 2, 9, 1};
  test.input = {1};
  Routed out = test.run({1, 2, 3, 5});
  EXPECT_EQ(out.ids, Ids({3, 2}));
  EXPECT_EQ(out.weights, Weights({0.625f, 0.375f}));
  test.input = {2};
  out = test.run({1, 2, 3, 5});
  EXPECT_EQ(out.ids, Ids({9, 1}));
  EXPECT_EQ(out.weights, Weights({0, 1}));
  for (int32_t outside : {-1, 3}) {
    test.input = {outside};
    out = test.run({1, 2, 3, 5});
    EXPECT_EQ(out.ids, Ids({-1, -1}));
    EXPECT_EQ(out.weights, Weights({0, 0}));
  }
}

TEST(Route, SparseMixer) {
  RouteTest test;
  test.routing = "top_k = 2, select = sparsemixer, nonfinite = neg_inf";
  // Near 10 within 2 %: 9.9; near 9.9: itself alone without 10.
  Routed out = test.run({1, 9.9f, 10, 5});
  EXPECT_EQ(out.ids, Ids({2, 1}));
  expectNear(out.weights, {sigmoid(0.1f), 1.0f});
  // All zero: 0/0 masks nothing.
  out = test.run({0, 0, 0, 0});
  EXPECT_EQ(out.ids, Ids({0, 1}));
  expectNear(out.weights, {0.25f, 1.0f / 3});
  out = test.run({kNaN, -1, kInf, -kInf});
  EXPECT_EQ(out.ids, Ids({1, 0}));
  EXPECT_EQ(out.weights, Weights({1, 0}));
  out = test.run({kNaN, kNaN, kInf, -kInf});
  EXPECT_EQ(out.weights, Weights({0.5f, 0.5f}));
}

TEST(Route, PaddingRows) {
  RouteTest test;
  test.operands = "num_valid_tokens";
  test.valid = {0};
  Routed out = test.run({1, 2, 3});
  EXPECT_EQ(out.ids, Ids({-1, -1}));
  EXPECT_EQ(out.weights, Weights({0, 0}));
  // Counts beyond the tokens are all tokens, negative ones none.
  test.valid = {7};
  EXPECT_EQ(test.run({1, 2, 3}).ids, Ids({2, 1}));
  test.valid = {-7};
  EXPECT_EQ(test.run({1, 2, 3}).ids, Ids({-1, -1}));
}
