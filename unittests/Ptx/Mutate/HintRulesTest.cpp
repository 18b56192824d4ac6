//===- HintRulesTest.cpp - tests of rules about fences and lanes ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MutateTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using namespace moec::ptx::mutate::test;

namespace {

//===----------------------------------------------------------------------===//
// Already fenced
//===----------------------------------------------------------------------===//

const char kFence[] = "wgmma.fence.sync.aligned;\n";
const char kWait[] = "wgmma.commit_group.sync.aligned;\n"
                     "wgmma.wait_group.sync.aligned 0;\n";

std::string product(const std::string &columns = "8") {
  std::string sums = columns == "8" ? "{%r1, %r2, %r3, %r4}"
                                    : "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, "
                                      "%r8}";
  return "wgmma.mma_async.sync.aligned.m64n" + columns + "k16.f32.bf16.bf16 " +
         sums + ", %rd1, %rd2, 1, 1, 1, 0, 0;\n";
}

TEST(FencedRule, ProductsOfOneShapeNeedOneFence) {
  std::string first = kFence + product() + kWait;
  EXPECT_EQ(rulesFor(first + kFence + product(), "wgmma fence"),
            "-; already fenced; ");
  // An MMA of another shape.
  EXPECT_EQ(rulesFor(first + kFence + product("16"), "wgmma fence"), "-; -; ");
  // Reading, writing, or moving an accumulator.
  for (const char *touch : {"st.global.b32 [%rd0], %r3;\n", "mov.b32 %r2, 0;\n",
                            "add.s32 %r9, %r1, 1;\n"})
    EXPECT_EQ(rulesFor(first + touch + kFence + product(), "wgmma fence"),
              "-; -; ");
  EXPECT_EQ(
      rulesFor(first + "mov.b32 %r9, 0;\n" + kFence + product(), "wgmma fence"),
      "-; already fenced; ");
}

TEST(FencedRule, OnEveryWay) {
  std::string first = kFence + product() + kWait;
  EXPECT_EQ(rulesFor(first + "@%p1 bra l;\nmov.b32 %r2, 0;\nl:\n" + kFence +
                         product(),
                     "wgmma fence"),
            "-; -; ");
  // In a loop, the fence is also the first one.
  EXPECT_EQ(rulesFor("again:\n" + std::string(kFence) + product() + kWait +
                         "@%p1 bra again;",
                     "wgmma fence"),
            "-; ");
  EXPECT_EQ(rulesFor(first + "again:\n" + kFence + product() + kWait +
                         "@%p1 bra again;",
                     "wgmma fence"),
            "-; already fenced; ");
}

//===----------------------------------------------------------------------===//
// Same in all lanes
//===----------------------------------------------------------------------===//

TEST(LaneRule, ValuesOfTheWarp) {
  std::string number = "shr.u32 %r1, %r0, 5;\n";
  EXPECT_EQ(rulesFor(number + "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", "lane"),
            "same in all lanes; same in all lanes; ");
  EXPECT_EQ(rulesFor("shr.u32 %r1, %r0, 7;\n"
                     "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;",
                     "lane"),
            "same in all lanes; same in all lanes; ");
  EXPECT_EQ(rulesFor("shr.u32 %r1, %r0, 4;\n"
                     "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;",
                     "lane"),
            "-; -; ");
  // Values that depend on the lane: the thread's own number, some lanes, half a
  // warp, another mode.
  EXPECT_EQ(rulesFor("shfl.sync.idx.b32 %r2, %r0, 0, 31, -1;", "lane"),
            "-; -; ");
  EXPECT_EQ(
      rulesFor(number + "shfl.sync.idx.b32 %r2, %r1, 0, 31, 255;", "lane"),
      "-; -; ");
  EXPECT_EQ(
      rulesFor(number + "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", "lane", 48),
      "-; -; ");
  EXPECT_EQ(rulesFor(number + "shfl.sync.up.b32 %r2, %r1, 1, 0, -1;", "lane"),
            "-; -; ");
}

TEST(LaneRule, SumsOfSumsTakeNoTime) {
  std::string sums = "shr.u32 %r1, %r0, 5;\n";
  for (int i = 1; i < 50; ++i) {
    std::string from = "%r" + std::to_string(i);
    sums += "add.s32 %r" + std::to_string(i + 1) + ", " + from + ", " + from +
            ";\n";
  }
  EXPECT_EQ(rulesFor(sums + "shfl.sync.idx.b32 %r63, %r50, 0, 31, -1;", "lane"),
            "same in all lanes; same in all lanes; ");
}

//===----------------------------------------------------------------------===//
// Rules about mutants that survive
//===----------------------------------------------------------------------===//

std::string survivors(const std::string &body, const std::string &kind) {
  return rulesFor(body, kind, 128, /*haveSurvived=*/true);
}

TEST(TestRule, AsksBeforeItWaits) {
  std::string test = "mbarrier.test_wait.parity.shared.b64 %p1, [%rd1], %r1;\n"
                     "vote.sync.ballot.b32 %r2, %p1, -1;\n"
                     "setp.ne.b32 %p2, %r2, 0;\n@%p2 bra w;\n";
  std::string early = "mbarrier.arrive.shared.b64 _, [%rd2];\n";
  std::string wait = "w:\nmbarrier.try_wait.parity.shared.b64 %p3, [%rd1], "
                     "%r1;\n@!%p3 bra w;\nst.shared.b32 [%rd3], %r3;\n";
  std::string two = "asks before it waits; asks before it waits; ";
  EXPECT_EQ(survivors(test + early + wait, "mbarrier test"), two);
  EXPECT_EQ(rulesFor(test + early + wait, "mbarrier test"), "-; -; ");
  EXPECT_EQ(survivors(test + early + wait, "branch").substr(0, 66),
            two + "asks before it waits; ");
  // Not provable: a memory access before the wait, another phase, or a wait
  // that may be skipped.
  EXPECT_EQ(
      survivors(test + "st.shared.b32 [%rd3], %r3;\n" + wait, "mbarrier test"),
      "-; -; ");
  EXPECT_EQ(survivors(test + "w:\nmbarrier.try_wait.parity.shared.b64 %p3, "
                             "[%rd2], %r1;\n@!%p3 bra w;\n",
                      "mbarrier test"),
            "-; -; ");
  EXPECT_EQ(survivors(test + "ret;\n" + wait, "mbarrier test"), "-; -; ");
}

TEST(FenceRule, WordsSinceABarrier) {
  std::string tail = "cp.async.ca.shared.global [%rd1], [%rd0], 4;\n"
                     "cp.async.wait_group 0;\nfence.proxy.async.shared::cta;\n";
  std::string chunk = "st.shared.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};\n";
  EXPECT_EQ(survivors(chunk + "bar.sync 0;\n" + tail, "proxy fence"),
            "single words; ");
  EXPECT_EQ(survivors(chunk + "bar.sync 0, 64;\n" + tail, "proxy fence"),
            "-; ");
  EXPECT_EQ(survivors("bar.sync 0;\n" + chunk + tail, "proxy fence"), "-; ");
  // Mbarriers have a fence of their own.
  std::string init = "bar.sync 0;\nmbarrier.init.shared.b64 [sm], 1;\n",
              fence = "fence.mbarrier_init.release.cluster;\n";
  EXPECT_EQ(survivors(chunk + init + fence + tail, "proxy fence"),
            "single words; ");
  EXPECT_EQ(survivors(chunk + init + tail, "proxy fence"), "-; ");
}

TEST(FenceRule, SingleWords) {
  std::string fence = "fence.proxy.async.shared::cta;\n",
              wait = "cp.async.wait_group 0;\n";
  std::string word = "cp.async.ca.shared.global [%rd1], [%rd0], 4;\n";
  EXPECT_EQ(survivors(fence + word + wait + fence, "proxy fence"),
            "single words; single words; ");
  EXPECT_EQ(rulesFor(fence + word + wait + fence, "proxy fence"),
            "nothing to fence; -; ");
  EXPECT_EQ(survivors(fence +
                          "cp.async.cg.shared.global [%rd1], [%rd0], 16;\n" +
                          wait + fence,
                      "proxy fence"),
            "single words; -; ");
  EXPECT_EQ(survivors(fence + word + "st.shared.v2.b32 [%rd1], {%r1, %r2};\n" +
                          wait + fence,
                      "proxy fence"),
            "single words; -; ");
}

TEST(FenceRule, CopiesThatHaveEnded) {
  std::string fence = "fence.proxy.async.shared::cta;\n",
              commit = "cp.async.commit_group;\n",
              wait = "cp.async.wait_group 0;\n";
  std::string chunk = "cp.async.cg.shared.global [%rd1], [%rd0], 16;\n";
  std::string test = "mbarrier.test_wait.parity.shared.b64 %p1, [%rd2], %r1;\n";
  // No copy is in flight after its fence.
  EXPECT_EQ(survivors(chunk + commit + wait + fence + test + wait + fence,
                      "proxy fence"),
            "-; single words; ");
  EXPECT_EQ(
      survivors(chunk + "cp.async.wait_all;\n" + fence + test + wait + fence,
                "proxy fence"),
      "-; single words; ");
  // One copy is in no group; one may be left in flight.
  EXPECT_EQ(
      survivors(chunk + commit + chunk + wait + fence + test + wait + fence,
                "proxy fence"),
      "-; -; ");
  EXPECT_EQ(survivors(chunk + commit + "cp.async.wait_group 1;\n" + fence +
                          test + wait + fence,
                      "proxy fence"),
            "-; -; ");
}

//===----------------------------------------------------------------------===//
// Only a hint
//===----------------------------------------------------------------------===//

TEST(HintRule, BranchesAroundPrefetches) {
  EXPECT_EQ(rulesFor("@%p1 bra l;\nadd.s64 %rd1, %rd0, 128;\n"
                     "prefetch.global.L2 [%rd1];\nl:",
                     "branch"),
            "only a hint; only a hint; only a hint; ");
  EXPECT_EQ(rulesFor("@%p1 bra l;\n"
                     "cp.async.bulk.prefetch.L2.global [%rd0], 32;\nl:",
                     "branch"),
            "only a hint; only a hint; only a hint; ");
  // The address is also used by a load.
  EXPECT_EQ(rulesFor("@%p1 bra l;\nadd.s64 %rd1, %rd0, 128;\n"
                     "prefetch.global.L2 [%rd1];\nl:\n"
                     "ld.global.b32 %r1, [%rd1];",
                     "branch"),
            "-; -; -; ");
  EXPECT_EQ(rulesFor("@%p1 bra l;\nst.global.b32 [%rd0], %r0;\nl:", "branch"),
            "-; -; -; ");
  // A loop of prefetches might not end.
  EXPECT_EQ(rulesFor("l:\nprefetch.global.L2 [%rd0];\n@%p1 bra l;", "branch"),
            "-; -; -; ");
}

} // namespace
