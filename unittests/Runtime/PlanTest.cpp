//===- PlanTest.cpp - tests of the plan verifier ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Plan.h"
#include "TestPlan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

using namespace moert;
using namespace moert::test;

namespace {
struct Case {
  const char *name;
  std::function<void(Plan &)> breakIt;
  const char *message;
};
} // namespace

static void expectRefused(const std::vector<Case> &cases) {
  for (const Case &c : cases) {
    Plan plan = makePlan();
    c.breakIt(plan);
    Status status = verifyPlan(plan);
    EXPECT_FALSE(status) << c.name;
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.name << ": " << status.message();
  }
}

static Expr parsed(const char *text) {
  Result<Expr> expr = Expr::parse(text);
  EXPECT_TRUE(expr) << expr.status().message();
  return *expr;
}

TEST(PlanTest, AcceptsTheTestPlan) {
  Status status = verifyPlan(makePlan());
  EXPECT_TRUE(status) << status.message();
}

TEST(PlanTest, FindsTensorsAndVariants) {
  Plan plan = makePlan();
  EXPECT_EQ(plan.findTensor("g"), G);
  EXPECT_EQ(plan.findTensor("nothing"), -1);
  EXPECT_EQ(plan.findVariant(0), 0);
  EXPECT_EQ(plan.findVariant(3), 0);
  EXPECT_EQ(plan.findVariant(4), 1);
  EXPECT_EQ(plan.findVariant(100), 1);
  EXPECT_EQ(plan.findVariant(101), -1);
}

TEST(PlanTest, RefusesBadHeaders) {
  expectRefused({
      {"target", [](Plan &p) { p.target = ""; }, "plan: target is empty; "},
      {"max_tokens", [](Plan &p) { p.maxTokens = 0; },
       "max_tokens is 0; 1 to 2147483647 is accepted"},
      {"streams", [](Plan &p) { p.numStreams = 0; },
       "num_streams is 0; 1 to 64 is accepted"},
      {"many streams", [](Plan &p) { p.numStreams = 65; },
       "num_streams is 65;"},
      {"events", [](Plan &p) { p.numEvents = -1; }, "num_events is -1; 0 to"},
      {"slots", [](Plan &p) { p.numSlots = 10; },
       "num_slots is 10; 0 to 9 is accepted"},
  });
}

TEST(PlanTest, RefusesBadTensors) {
  expectRefused({
      {"no name", [](Plan &p) { p.tensors[2].name = ""; },
       "tensors[2].name is empty; a name is accepted"},
      {"same name", [](Plan &p) { p.tensors[G].name = "h"; },
       "tensors[5].name is 'h', the name of tensors[4] too;"},
      {"inner dimension",
       [](Plan &p) { p.tensors[X].shape[1] = Expr::tokens(); },
       "tensors[0].shape[1] is 'tokens'; a constant (only dimension 0 may "
       "depend on tokens) is accepted"},
      {"weight of tokens",
       [](Plan &p) { p.tensors[Scale].shape[0] = Expr::tokens(); },
       "tensors[1].shape[0] is 'tokens'; a constant (the role is weight)"},
      {"prepared of tokens",
       [](Plan &p) { p.tensors[Twice].shape[0] = Expr::tokens(); },
       "tensors[2].shape[0] is 'tokens'; a constant (the role is prepared)"},
      {"negative", [](Plan &p) { p.tensors[Scale].shape[0] = -4; },
       "tensors[1].shape[0] is '-4', which is -4 at some token count; a size "
       ">= 0"},
      {"negative for few tokens",
       [](Plan &p) { p.tensors[H].shape[0] = parsed("tokens - 5"); },
       "tensors[4].shape[0] is 'tokens - 5', which is -5 at some"},
      {"bad divisor",
       [](Plan &p) { p.tensors[H].shape[0] = parsed("ceildiv(8, tokens)"); },
       "tensors[4].shape[0]: ceildiv by 0 in"},
      {"too large", [](Plan &p) { p.tensors[H].shape[1] = int64_t(1) << 60; },
       "size of tensors[4] 'h': 64-bit overflow in"},
      {"alignment 0", [](Plan &p) { p.tensors[X].alignment = 0; },
       "tensors[0].alignment is 0; a power of two from 1 to 256"},
      {"alignment 48", [](Plan &p) { p.tensors[X].alignment = 48; },
       "tensors[0].alignment is 48;"},
      {"alignment 512", [](Plan &p) { p.tensors[X].alignment = 512; },
       "tensors[0].alignment is 512;"},
      {"no slot", [](Plan &p) { p.tensors[H].slot = -1; },
       "tensors[4].slot is -1; an index into slots, of which there are 3,"},
      {"slot out of range", [](Plan &p) { p.tensors[H].slot = 3; },
       "tensors[4].slot is 3;"},
      {"slot of an input", [](Plan &p) { p.tensors[X].slot = 0; },
       "tensors[0].slot is 0; -1 (the role is input) is accepted"},
      {"workspace too large",
       [](Plan &p) {
         for (int64_t i : {H, G})
           p.tensors[i].shape = {Expr(int64_t(1) << 60)};
         p.tensors[Z].shape = {Expr(int64_t(1) << 60)};
         p.tensors[S].shape = {Expr(int64_t(1) << 60)};
       },
       "plan: workspace: 64-bit overflow in"},
  });
}

TEST(PlanTest, RefusesBadKernelsAndLaunches) {
  expectRefused({
      {"no name", [](Plan &p) { p.kernels[1].name = ""; },
       "kernels[1].name is empty"},
      {"same name", [](Plan &p) { p.kernels[1].name = "copy"; },
       "kernels[4].name is 'copy', the name of kernels[1] too"},
      {"block", [](Plan &p) { p.kernels[1].block = 1025; },
       "kernels[1].block is 1025; 0 to 1024 is accepted"},
      {"negative block", [](Plan &p) { p.kernels[1].block = -1; },
       "kernels[1].block is -1;"},
      {"shared memory", [](Plan &p) { p.kernels[2].shared = 232449; },
       "kernels[2].shared is 232449; 0 to 232448 is accepted"},
      {"negative shared memory", [](Plan &p) { p.kernels[2].shared = -1; },
       "kernels[2].shared is -1;"},
      {"negative grid",
       [](Plan &p) { p.kernels[1].grid = parsed("tokens - 1"); },
       "kernels[1].grid is 'tokens - 1', which reaches -1 in "
       "variants[0].steps[0]; 0 to 2147483647"},
      {"huge grid",
       [](Plan &p) { p.kernels[4].grid = parsed("tokens * 100000000"); },
       "kernels[4].grid is 'tokens * 100000000', which reaches 10000000000 in "
       "variants[1].steps[3]"},
      {"grid without value",
       [](Plan &p) { p.kernels[1].grid = parsed("ceildiv(4, tokens - 2)"); },
       "kernels[1].grid, launched by variants[0].steps[0]: ceildiv by -2"},
      {"kernel index", [](Plan &p) { p.variants[1].steps[3].kernel = 6; },
       "variants[1].steps[3].kernel is 6; an index into kernels, of which "
       "there are 6, is accepted"},
      {"negative kernel", [](Plan &p) { p.variants[0].steps[0].kernel = -1; },
       "variants[0].steps[0].kernel is -1;"},
      {"tensor index",
       [](Plan &p) { p.variants[0].steps[1].args[1].tensor = 9; },
       "variants[0].steps[1].args[1].tensor is 9; an index into tensors"},
      {"scalar without value",
       [](Plan &p) {
         p.variants[0].steps[1].args[2].scalar = parsed("ceildiv(1, tokens)");
       },
       "variants[0].steps[1].args[2]: ceildiv by 0"},
      {"stream", [](Plan &p) { p.variants[1].steps[3].stream = 2; },
       "variants[1].steps[3].stream is 2; 0 to 1 is accepted"},
      {"output unused", [](Plan &p) { p.variants[0].steps.pop_back(); },
       "no launch of variants[0] has the output tensors[8] 'y' as an"},
  });
}

TEST(PlanTest, RefusesBadRanges) {
  expectRefused({
      {"no variant", [](Plan &p) { p.variants.clear(); },
       "variants is empty; at least one variant"},
      {"not from 0", [](Plan &p) { p.variants[0].minTokens = 1; },
       "variants[0].min_tokens is 1; 0 (no gap, no overlap)"},
      {"gap", [](Plan &p) { p.variants[1].minTokens = 5; },
       "variants[1].min_tokens is 5; 4 (no gap, no overlap)"},
      {"overlap", [](Plan &p) { p.variants[1].minTokens = 3; },
       "variants[1].min_tokens is 3; 4 (no gap, no overlap)"},
      {"reversed", [](Plan &p) { p.variants[0].maxTokens = -1; },
       "variants[0].max_tokens is -1; 0 to 100"},
      {"too far", [](Plan &p) { p.variants[1].maxTokens = 101; },
       "variants[1].max_tokens is 101; 4 to 100"},
      {"extreme",
       [](Plan &p) {
         p.variants[0].maxTokens = std::numeric_limits<int64_t>::max();
       },
       "variants[0].max_tokens is 9223372036854775807; 0 to 100"},
      {"too short", [](Plan &p) { p.variants[1].maxTokens = 99; },
       "variants[1].max_tokens is 99; 100 (the last variant reaches "
       "max_tokens)"},
  });
}

TEST(PlanTest, RefusesBadEvents) {
  expectRefused({
      {"event index", [](Plan &p) { p.variants[1].steps[0].event = 2; },
       "variants[1].steps[0].event is 2; an index into events, of which there "
       "are 2,"},
      {"arguments",
       [](Plan &p) {
         p.variants[1].steps[0].args.push_back(Argument::ofTensor(-1));
       },
       "variants[1].steps[0].args is not empty; an empty list (only launches "
       "have arguments) is accepted"},
      {"never recorded", [](Plan &p) { p.variants[1].steps[2].event = 1; },
       "variants[1].steps[2] waits for event 1, which no earlier step records"},
      {"stream without fork",
       [](Plan &p) {
         auto &steps = p.variants[1].steps;
         steps.erase(steps.begin() + 2);
       },
       "variants[1].steps[2] is the first of stream 1; let that stream wait"},
      {"stream without join",
       [](Plan &p) {
         auto &steps = p.variants[1].steps;
         steps.erase(steps.begin() + 7);
       },
       "variants[1].steps[3] on stream 1 may still run at the end"},
      {"joined too early",
       [](Plan &p) {
         auto &steps = p.variants[1].steps;
         std::swap(steps[3], steps[4]);
       },
       "variants[1].steps[4] on stream 1 may still run at the end"},
  });
}

TEST(PlanTest, RefusesDependentLaunchesOfNobody) {
  auto onGpu = [](Plan &plan) {
    plan.target = "sm_90a";
    for (KernelDecl &kernel : plan.kernels)
      kernel.block = 32;
  };
  Plan plan = makePlan();
  onGpu(plan);
  for (size_t i : {1, 2, 3})
    plan.variants[0].steps[i].dependent = true;
  plan.variants[1].steps[6].dependent = true;
  plan.prepare.push_back(plan.prepare[0]);
  plan.prepare[1].dependent = true;
  Status status = verifyPlan(plan);
  EXPECT_TRUE(status) << status.message();
  expectRefused({
      {"host", [](Plan &p) { p.variants[0].steps[1].dependent = true; },
       "variants[0].steps[1].dependent is true; false (kernels for 'cpu' "
       "cannot wait for the launch before them) is accepted"},
      {"old target",
       [&](Plan &p) {
         onGpu(p);
         p.target = "sm_80";
         p.variants[0].steps[1].dependent = true;
       },
       "false (kernels for 'sm_80' cannot wait"},
      {"first of a run",
       [&](Plan &p) {
         onGpu(p);
         p.variants[0].steps[0].dependent = true;
       },
       "variants[0].steps[0].dependent is true; false (the step before it on "
       "stream 0 is no launch) is accepted"},
      {"after a record",
       [&](Plan &p) {
         onGpu(p);
         p.variants[1].steps[1].dependent = true;
       },
       "variants[1].steps[1].dependent is true"},
      {"after a wait",
       [&](Plan &p) {
         onGpu(p);
         p.variants[1].steps[8].dependent = true;
       },
       "variants[1].steps[8].dependent is true"},
      {"an event",
       [&](Plan &p) {
         onGpu(p);
         p.variants[1].steps[2].dependent = true;
       },
       "variants[1].steps[2].dependent is true"},
      {"first prepare step",
       [&](Plan &p) {
         onGpu(p);
         p.prepare[0].dependent = true;
       },
       "prepare[0].dependent is true"},
  });
}

TEST(PlanTest, RefusesResidentKernelsSideBySide) {
  Plan plan = makePlan();
  // Ordered, on one stream and, in the second variant, on two.
  for (int64_t kernel : {2, 3, 5})
    plan.kernels[kernel].resident = true;
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  plan.kernels[4].resident = true;
  EXPECT_EQ(
      verifyPlan(plan).message(),
      "plan: variants[1].steps[3] and variants[1].steps[5] launch kernels that "
      "need all of their CTAs at once, but neither is complete before the "
      "other begins; let one stream wait for the other");
  for (int64_t kernel : {2, 3})
    plan.kernels[kernel].resident = false;
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
}

TEST(PlanTest, RefusesBadPrepareSteps) {
  expectRefused({
      {"event", [](Plan &p) { p.prepare.push_back(Step::record(0, 0)); },
       "prepare[1].kind is an event; a launch is accepted"},
      {"stream", [](Plan &p) { p.prepare[0].stream = 1; },
       "prepare[0].stream is 1; 0 to 0 is accepted"},
      {"input", [](Plan &p) { p.prepare[0].args[0].tensor = X; },
       "prepare[0].args[0] is the input tensor 'x'; a weight or prepared"},
      {"tokens",
       [](Plan &p) { p.prepare[0].args.push_back(Argument::ofTokens()); },
       "prepare[0].args[2] is 'tokens'; a constant (a prepare step knows no"},
      {"grid of tokens", [](Plan &p) { p.prepare[0].kernel = 4; },
       "kernels[4].grid is 'ceildiv(tokens * 4, 4)'; a constant (prepare[0] "
       "launches it)"},
      {"nothing made", [](Plan &p) { p.prepare.clear(); },
       "tensors[2] 'twice' is prepared, but no prepare step has it as an"},
  });
}

TEST(PlanTest, RefusesTensorsThatShareASlotAtTheSameTime) {
  expectRefused({
      {"in one launch", [](Plan &p) { p.tensors[G].slot = 0; },
       "tensors[4] 'h' and tensors[5] 'g' share slot 0, but in variants[0] "
       "the lifetime of neither ends before the other begins"},
      {"across streams", [](Plan &p) { p.tensors[S].slot = 1; },
       "tensors[5] 'g' and tensors[7] 's' share slot 1, but in variants[1]"},
  });
}

TEST(PlanTest, RefusesSizesThatTakeTooLongToCheck) {
  // One is evaluated at every token count; many of them would take minutes.
  Expr hill = *Expr::parse("tokens * (100 - tokens)");
  auto addHills = [&](Plan &plan, int count) {
    plan.maxTokens = plan.variants.back().maxTokens = 100000;
    for (int i = 0; i < count; ++i)
      plan.variants.back().steps[1].args.push_back(Argument::ofScalar(hill));
  };
  Plan few = makePlan(), many = makePlan();
  addHills(few, 3);
  EXPECT_TRUE(verifyPlan(few)) << verifyPlan(few).message();
  addHills(many, 100);
  Status status = verifyPlan(many);
  EXPECT_EQ(status.code(), StatusCode::OutOfRange);
  EXPECT_NE(status.message().find("lower the largest token count"),
            std::string::npos)
      << status.message();
}

TEST(PlanTest, SharingFollowsTheOrderOfEvents) {
  // Let the second stream start only after the last use of h. Then s may share
  // h's slot, except that z is still in it.
  Plan plan = makePlan();
  auto &steps = plan.variants[1].steps;
  steps = {steps[1],           steps[5],         steps[6],
           Step::record(0, 0), Step::wait(0, 1), steps[3],
           steps[4],           Step::wait(1, 0), steps.back()};
  EXPECT_TRUE(verifyPlan(plan));
  plan.tensors[S].slot = 1; // The slot of g, which is dead.
  EXPECT_TRUE(verifyPlan(plan));
  plan.tensors[S].slot = 0;
  EXPECT_FALSE(verifyPlan(plan));
  plan.tensors[Z].slot = 2;
  EXPECT_TRUE(verifyPlan(plan));
}
