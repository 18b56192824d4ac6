//===- CandidateMemoTest.cpp - candidates are evaluated once ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/CandidateMemo.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Parser/Parser.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Schedules/Device.h"
#include "llvm/Support/FormatVariadic.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;

namespace {

/// Two gemms. The second one, @k, has `columns` results and the input rows
/// `rows`: %x, or the results %z of the first.
std::string makeModule(StringRef rows, int64_t columns = 256) {
  return llvm::formatv(
      R"(plan.program @p max_tokens 64 {{
           %x = plan.tensor input "x" rows <"tokens"> : memref<?x256xbf16>
           %z = plan.buffer "z" slot 0 rows <"tokens"> : memref<?x256xbf16>
           %v = plan.tensor weight "v" : memref<8x256x256xbf16>
           %w = plan.tensor weight "w" : memref<8x{1}x256xbf16>
           %o = plan.tensor input "o" : memref<9xi32>
           %y = plan.tensor output "y" rows <"tokens"> : memref<?x{1}xbf16>
           plan.variant tokens 0 to 64 {{
             plan.launch @first ins(%x, %v, %o : memref<?x256xbf16>, memref<8x256x256xbf16>, memref<9xi32>)
               outs(%z : memref<?x256xbf16>)
             plan.launch @k ins({0}, %w, %o : memref<?x256xbf16>, memref<8x{1}x256xbf16>, memref<9xi32>)
               outs(%y : memref<?x{1}xbf16>)
           }
         }
         tile.kernel @first(%x: memref<?x256xbf16>, %w: memref<8x256x256xbf16>,
             %o: memref<9xi32>, %y: memref<?x256xbf16>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x256x256xbf16>)
             offsets(%o : memref<9xi32>) outs(%y : memref<?x256xbf16>)
           tile.return
         }
         tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x{1}x256xbf16>,
             %o: memref<9xi32>, %y: memref<?x{1}xbf16>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x{1}x256xbf16>)
             offsets(%o : memref<9xi32>) outs(%y : memref<?x{1}xbf16>)
           tile.return
         })",
      rows, columns);
}

class CandidateMemoTest : public testing::Test {
protected:
  CandidateMemoTest() {
    DialectRegistry registry;
    registry
        .insert<memref::MemRefDialect, plan::PlanDialect, tile::TileDialect>();
    registerCandidateMemo(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  tile::GemmOp parse(const std::string &text) {
    modules.push_back(parseSourceString<ModuleOp>(text, &context));
    EXPECT_TRUE(modules.back());
    auto kernel = modules.back()->lookupSymbol<tile::KernelOp>("k");
    return *kernel.getBody().getOps<tile::GemmOp>().begin();
  }
  std::string getKey(tile::GemmOp op, const Target &target,
                     int64_t maxTokens = 64) {
    return CandidateMemo::getKey(
        op, *findSchedule(target, "sm90.gemm")->as<ModelsTime>(), target,
        tile::LoadAttr::get(&context, 1, maxTokens, 2, 8), {1, maxTokens});
  }

  MLIRContext context;
  std::vector<OwningOpRef<ModuleOp>> modules;
  Target target = *Target::find("sm_90a", 0, "h200");
};

TEST_F(CandidateMemoTest, EvaluatesEachKeyOnce) {
  CandidateMemo &memo = *CandidateMemo::find(&context);
  int evaluations = 0;
  auto evaluate = [&] {
    ++evaluations;
    std::vector<Candidate> candidates(2);
    candidates[1].relative = 3;
    return candidates;
  };
  for (int i = 0; i < 2; ++i) {
    std::vector<Candidate> candidates = memo.get("a", evaluate);
    ASSERT_EQ(candidates.size(), 2u);
    EXPECT_EQ(candidates[1].relative, 3);
    EXPECT_EQ(evaluations, 1);
  }
  (void)memo.get("b", evaluate);
  EXPECT_EQ(evaluations, 2);
}

TEST_F(CandidateMemoTest, GivesTheCandidatesOfAnEvaluation) {
  std::string text = makeModule("%z");
  tile::GemmOp op = parse(text);
  const auto &schedule = *findSchedule(target, "sm90.gemm")->as<ModelsTime>();
  auto load = tile::LoadAttr::get(&context, 1, 64, 2, 8);
  std::vector<Candidate> first =
      evaluateCandidates(op, schedule, target, load, {1, 64});
  ASSERT_FALSE(first.empty());
  // The second module has equal text, so that its candidates are known.
  int evaluations = 0;
  std::vector<Candidate> known =
      CandidateMemo::find(&context)->get(getKey(parse(text), target), [&] {
        ++evaluations;
        return std::vector<Candidate>();
      });
  EXPECT_EQ(evaluations, 0);
  ASSERT_EQ(known.size(), first.size());
  for (auto [a, b] : llvm::zip(known, first)) {
    EXPECT_EQ(a.config, b.config);
    EXPECT_EQ(a.whyNot, b.whyNot);
    EXPECT_EQ(a.us, b.us);
    EXPECT_EQ(a.scores, b.scores);
  }
}

TEST_F(CandidateMemoTest, KeysHaveAllThatCandidatesDependOn) {
  tile::GemmOp op = parse(makeModule("%z"));
  std::string key = getKey(op, target);
  EXPECT_EQ(key, getKey(parse(makeModule("%z")), target));
  // Rows of a caller have no tensor maps.
  EXPECT_NE(key, getKey(parse(makeModule("%x")), target));
  EXPECT_NE(key, getKey(parse(makeModule("%z", 512)), target));
  EXPECT_NE(key, getKey(op, target, 32));
  EXPECT_NE(key, getKey(op, *Target::find("sm_90a", 0, "h100-sxm")));
}

TEST_F(CandidateMemoTest, OtherRatesAreNotRemembered) {
  tile::GemmOp op = parse(makeModule("%z"));
  const auto &schedule = *findSchedule(target, "sm90.gemm")->as<ModelsTime>();
  auto load = tile::LoadAttr::get(&context, 1, 64, 2, 8);
  DeviceRates rates = *getDeviceRates(target);
  Target fitted = target;
  fitted.rates = &rates;
  std::vector<Candidate> before =
      evaluateCandidates(op, schedule, fitted, load, {1, 64});
  rates.launchUs += 1;
  std::vector<Candidate> after =
      evaluateCandidates(op, schedule, fitted, load, {1, 64});
  ASSERT_FALSE(before.empty());
  EXPECT_LT(before.front().us.front(), after.front().us.front());
}

TEST(WithoutCandidateMemo, AContextMayHaveNone) {
  MLIRContext context;
  EXPECT_EQ(CandidateMemo::find(&context), nullptr);
  context.loadDialect<tile::TileDialect>();
  EXPECT_EQ(CandidateMemo::find(&context), nullptr);
}

} // namespace
