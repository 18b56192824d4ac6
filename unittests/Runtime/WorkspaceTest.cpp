//===- WorkspaceTest.cpp - tests of workspace sizes -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Workspace.h"
#include "TestPlan.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace moert;
using namespace moert::test;

TEST(WorkspaceTest, TensorBytes) {
  Expr tokens = Expr::tokens();
  EXPECT_EQ(tensorBytes({"a", DType::BF16, {tokens, 3, 5}}).str(),
            "tokens * 30");
  EXPECT_EQ(tensorBytes({"a", DType::I64, {}}).str(), "8");
  EXPECT_EQ(tensorBytes({"a", DType::F4E2M1, {tokens, 3}}).str(),
            "ceildiv(tokens * 12, 8)");
  EXPECT_EQ(tensorBytes({"a", DType::F4E2M1, {8, 32}}).str(), "128");
}

TEST(WorkspaceTest, SlotsAreAlignedPrefixSums) {
  Plan plan = makePlan();
  Result<WorkspaceLayout> layout =
      layoutWorkspace(plan, plan.variants[1], /*tokens=*/10);
  ASSERT_TRUE(layout);
  // h, g and z have 10 * 2 * 4 * 4 = 320 bytes, s has 160.
  EXPECT_EQ(layout->offsets[H], 0);
  EXPECT_EQ(layout->offsets[Z], 0);
  EXPECT_EQ(layout->offsets[G], 512);
  EXPECT_EQ(layout->offsets[S], 1024);
  EXPECT_EQ(layout->offsets[X], -1);
  EXPECT_EQ(layout->bytes, 1280);
  EXPECT_EQ(*variantWorkspaceBytes(plan, plan.variants[1]).evaluate(10), 1280);
}

TEST(WorkspaceTest, VariantsCountOnlyWhatTheyUse) {
  Plan plan = makePlan();
  Result<WorkspaceLayout> layout =
      layoutWorkspace(plan, plan.variants[0], /*tokens=*/3);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->offsets[S], -1);
  EXPECT_EQ(layout->bytes, 512);
}

TEST(WorkspaceTest, QueryIsTheMaximumOverAllSmallerCounts) {
  Plan plan = makePlan();
  // More rows for fewer tokens, as split-K has.
  plan.tensors[G].shape[0] = Expr(1000) - Expr::tokens() * 9;
  ASSERT_TRUE(verifyPlan(plan));
  EXPECT_EQ(*workspaceBytes(plan, 0), 16128);
  EXPECT_EQ(*workspaceBytes(plan, 100), *workspaceBytes(plan, 50));
  for (int64_t most : {0, 3, 4, 17, 100}) {
    int64_t expected = 0;
    for (int64_t t = 0; t <= most; ++t) {
      const Variant &variant = plan.variants[plan.findVariant(t)];
      Result<WorkspaceLayout> layout = layoutWorkspace(plan, variant, t);
      ASSERT_TRUE(layout);
      expected = std::max(expected, layout->bytes);
    }
    EXPECT_EQ(*workspaceBytes(plan, most), expected) << most;
  }
}

TEST(WorkspaceTest, RefusesTokenCountsOutOfRange) {
  Plan plan = makePlan();
  for (int64_t tokens : {-1, 101}) {
    Result<int64_t> bytes = workspaceBytes(plan, tokens);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.status().code(), StatusCode::OutOfRange);
    EXPECT_NE(bytes.status().message().find("0 to max_tokens = 100"),
              std::string::npos);
  }
}
