//===- RulesTest.cpp - tests of equivalence proofs --------------*- C++ -*-===//
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

const char kNothing[] = "nothing in flight; ";
const char kNeighbours[] = "stronger neighbours; ";

//===----------------------------------------------------------------------===//
// Nothing in flight
//===----------------------------------------------------------------------===//

const char kCopy[] = "cp.async.cg.shared.global [%rd1], [%rd0], 16;\n";

TEST(Rules, WaitForNothing) {
  std::string copy = kCopy;
  std::string commit = "cp.async.commit_group;\n";
  EXPECT_EQ(rulesFor(copy + commit + "cp.async.wait_group 0;", "cp.async wait"),
            "-; -; ");
  EXPECT_EQ(rulesFor(copy + commit + "cp.async.wait_group 1;", "cp.async wait"),
            std::string(kNothing) + kNothing);
  // Without a wait, the copy stays in flight. One more group in flight is
  // harmless only if that group is empty.
  EXPECT_EQ(rulesFor(copy + commit + commit + "cp.async.wait_group 1;",
                     "cp.async wait"),
            "-; -; ");
  EXPECT_EQ(rulesFor(copy + commit + commit + "cp.async.wait_group 0;",
                     "cp.async wait"),
            "-; " + std::string(kNothing));
  EXPECT_EQ(
      rulesFor(copy + commit + "cp.async.wait_group 0;\ncp.async.wait_group 0;",
               "cp.async wait"),
      "-; -; " + std::string(kNothing) + kNothing);
  // A copy may be in flight on one of two paths.
  EXPECT_EQ(rulesFor("@%p1 bra l;\n" + copy + "l:\n" + commit +
                         "cp.async.wait_group 0;",
                     "cp.async wait"),
            "-; -; ");
}

TEST(Rules, CommitOfNothing) {
  std::string copy = kCopy, commit = "cp.async.commit_group;\n";
  EXPECT_EQ(rulesFor(copy + commit + "cp.async.wait_group 0;", "commit"),
            "-; ");
  EXPECT_EQ(rulesFor(commit + "cp.async.wait_group 0;", "commit"), kNothing);
  // The empty group makes the wait end the first one.
  EXPECT_EQ(
      rulesFor(copy + commit + commit + "cp.async.wait_group 1;", "commit"),
      "-; -; ");
  EXPECT_EQ(
      rulesFor(copy + commit + commit + "cp.async.wait_group 0;", "commit"),
      "-; " + std::string(kNothing));
}

/// The last of three rounds copies nothing.
TEST(Rules, RoundsOfALoopAreCounted) {
  auto loop = [](const std::string &last) {
    return "mov.b32 %r1, 0;\nagain:\nsetp.eq.b32 %p1, %r1, " + last +
           ";\n@%p1 bra skip;\n" + kCopy +
           "skip:\ncp.async.commit_group;\ncp.async.wait_group 1;\n"
           "add.s32 %r1, %r1, 1;\nsetp.lt.s32 %p2, %r1, 3;\n@%p2 bra again;\n"
           "cp.async.wait_group 0;";
  };
  EXPECT_EQ(rulesFor(loop("2"), "cp.async wait"),
            "-; -; " + std::string(kNothing) + kNothing);
  EXPECT_EQ(rulesFor(loop("1"), "cp.async wait"), "-; -; -; -; ");
  EXPECT_EQ(rulesFor(loop("%r2"), "cp.async wait"), "-; -; -; -; ");
}

//===----------------------------------------------------------------------===//
// Fences
//===----------------------------------------------------------------------===//

TEST(Rules, NothingToFence) {
  std::string fence = "fence.proxy.async.shared::cta;\n";
  std::string write = "st.shared.b32 [%rd1], %r1;\n";
  const std::string rule = "nothing to fence; ";
  EXPECT_EQ(rulesFor(write + fence, "proxy fence"), "-; ");
  EXPECT_EQ(rulesFor(write + fence + fence, "proxy fence"), "-; " + rule);
  EXPECT_EQ(rulesFor(write + fence + write + fence, "proxy fence"), "-; -; ");
  // The fence may stand in for writes of other threads.
  EXPECT_EQ(rulesFor(fence + "bar.sync 0;\n" + fence, "proxy fence"),
            rule + "-; ");
  EXPECT_EQ(
      rulesFor(std::string(kCopy) + fence + "cp.async.wait_all;\n" + fence,
               "proxy fence"),
      rule + "-; ");
  EXPECT_EQ(
      rulesFor("mbarrier.init.shared.b64 [sm], 1;\n" + fence, "proxy fence"),
      "-; ");
}

TEST(Rules, MbarrierInit) {
  std::string init = "mbarrier.init.shared.b64 [sm], 1;\n"
                     "fence.mbarrier_init.release.cluster;\n";
  std::string fence = "fence.proxy.async.shared::cta;\n";
  EXPECT_EQ(rulesFor(init + fence, "fence of mbarrier init"), "single CTA; ");
  EXPECT_EQ(rulesFor(init + fence, "proxy fence"), "nothing to fence; ");
  EXPECT_EQ(rulesFor(init, "fence of mbarrier init"), "-; ");
  EXPECT_EQ(rulesFor(init + "bar.sync 0;\n" + fence, "fence of mbarrier init"),
            "-; ");
  EXPECT_EQ(rulesFor(init + fence + "mapa.u64 %rd2, %rd1, 0;",
                     "fence of mbarrier init"),
            "-; ");
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

TEST(Rules, NeverEqual) {
  auto rule = [](const std::string &body, const std::string &bound) {
    return rulesFor(body + "setp.lt.s32 %p1, %r1, " + bound + ";", "bound");
  };
  const std::string never = "never equal; ";
  EXPECT_EQ(rule("shl.b32 %r1, %r0, 3;\n", "63"), never);
  EXPECT_EQ(rule("shl.b32 %r1, %r0, 3;\n", "64"), "-; ");
  EXPECT_EQ(rule("shl.b32 %r2, %r0, 3;\nor.b32 %r1, %r2, 5;\n", "64"), never);
  EXPECT_EQ(rule("shl.b32 %r2, %r0, 3;\nor.b32 %r1, %r2, 5;\n", "69"), "-; ");
  EXPECT_EQ(rule("and.b32 %r1, %r0, -4;\n", "6"), never);
  EXPECT_EQ(rule("and.b32 %r1, %r0, -4;\n", "8"), "-; ");
  EXPECT_EQ(rule("mul.lo.s32 %r2, %r0, 12;\nadd.s32 %r1, %r2, 2;\n", "8"),
            never);
  // A loop preserves the bits that its step preserves.
  EXPECT_EQ(rule("mov.b32 %r1, 2;\nl:\nadd.s32 %r1, %r1, 4;\n", "8"), never);
  EXPECT_EQ(rule("mov.b32 %r1, 2;\nl:\nadd.s32 %r1, %r1, 2;\n", "4"), "-; ");
  EXPECT_EQ(rule("@%p2 shl.b32 %r1, %r0, 3;\n@%p3 mov.b32 %r1, %r0;\n", "7"),
            "-; ");
  EXPECT_EQ(rule("cvt.u32.u8 %r1, 256;\n", "0"), "-; ");
  EXPECT_EQ(rule("ld.global.b32 %r1, [%rd0];\n", "7"), "-; ");
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// %rd1 and %rd2 are the thread's addresses in `one` and `two`, %rd3 another
/// thread's.
const char kPlaces[] = "mul.wide.u32 %rd10, %r0, 4;\nmov.b64 %rd11, one;\n"
                       "add.s64 %rd1, %rd11, %rd10;\nmov.b64 %rd12, two;\n"
                       "add.s64 %rd2, %rd12, %rd10;\nxor.b32 %r10, %r0, 1;\n"
                       "mul.wide.u32 %rd13, %r10, 4;\n"
                       "add.s64 %rd3, %rd11, %rd13;\n";

std::string barrierRule(const std::string &before, const std::string &after,
                        const std::string &barrier = "bar.sync 0;\n") {
  return rulesFor(kPlaces + before + barrier + after,
                  barrier == "bar.sync 0;\n" ? "CTA barrier" : "warp barrier");
}

TEST(Rules, BarriersBetweenAccesses) {
  std::string write = "st.shared.b32 [%rd1], %r1;\n";
  std::string other = "ld.shared.b32 %r2, [%rd3];\n";
  EXPECT_EQ(barrierRule(write, other), "-; ");
  EXPECT_EQ(barrierRule(write, ""), kNeighbours);
  EXPECT_EQ(barrierRule("", other), kNeighbours);
  EXPECT_EQ(barrierRule(other, "ld.shared.b32 %r3, [%rd1];\n"), kNeighbours);
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd1];\n"), kNeighbours);
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd1+4];\n"), "-; ");
  EXPECT_EQ(barrierRule(write, "ld.shared.v2.b32 {%r3, %r4}, [%rd1];\n"),
            "-; ");
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd2];\n"), kNeighbours);
  EXPECT_EQ(barrierRule(write, "ld.global.b32 %r3, [%rd0];\n"), kNeighbours);
  EXPECT_EQ(barrierRule("st.global.b32 [%rd0], %r1;\n",
                        "ld.global.b32 %r3, [%rd0];\n"),
            "-; ");
  // 1024 threads access the bytes from 0 to 4095.
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd1+4092];\n"), "-; ");
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd1+4096];\n"),
            kNeighbours);
  // Signals order more than the accesses themselves.
  EXPECT_EQ(barrierRule(write, "mbarrier.arrive.shared.b64 _, [sm];\n"), "-; ");
  EXPECT_EQ(barrierRule(kCopy, other), "-; ");
}

TEST(Rules, NeighboursOrderTheRest) {
  std::string write = "st.shared.b32 [%rd1], %r1;\n";
  std::string other = "ld.shared.b32 %r2, [%rd3];\n", bar = "bar.sync 0;\n";
  EXPECT_EQ(rulesFor(kPlaces + write + bar + bar + other, "CTA barrier"),
            std::string(kNeighbours) + kNeighbours);
  EXPECT_EQ(rulesFor(kPlaces + write + bar + "mov.b32 %r3, 0;\n" + other + bar,
                     "CTA barrier"),
            "-; " + std::string(kNeighbours));
  // Around a loop, instructions after the barrier also come before it.
  EXPECT_EQ(rulesFor(std::string(kPlaces) + "l:\n" + write + bar + other +
                         "setp.lt.s32 %p1, %r5, 3;\n@%p1 bra l;",
                     "CTA barrier"),
            "-; ");
  // A warp barrier does not synchronize the CTA.
  EXPECT_EQ(rulesFor(kPlaces + write + bar + "bar.warp.sync -1;\n" + other,
                     "CTA barrier"),
            "-; ");
}

TEST(Rules, AllThreadsComeToTheBarrier) {
  std::string some = "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra l;\n";
  EXPECT_EQ(rulesFor(some + "bar.sync 0;\nbra.uni m;\nl:\nbar.sync 0;\nm:",
                     "CTA barrier"),
            "-; -; ");
  EXPECT_EQ(rulesFor(some + "mov.b32 %r1, 0;\nl:\nbar.sync 0;", "CTA barrier"),
            kNeighbours);
}

TEST(Rules, BarriersOfAWarp) {
  std::string bar = "bar.warp.sync -1;\n",
              write = "st.shared.b32 [%rd1], %r1;\n";
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd1];\n", bar),
            kNeighbours);
  EXPECT_EQ(barrierRule(write, "ld.shared.b32 %r3, [%rd3];\n", bar), "-; ");
  std::string lane = "and.b32 %r11, %r0, 31;\nsetp.ne.b32 %p3, %r11, 0;\n";
  auto byLane = [](const std::string &what, const std::string &label) {
    return "@%p3 bra " + label + ";\n" + what + label + ":\n";
  };
  std::string anywhere = "st.shared.b32 [%rd5], %r1;\n";
  EXPECT_EQ(
      barrierRule(lane + byLane(anywhere, "l"), byLane(anywhere, "m"), bar),
      kNeighbours);
  EXPECT_EQ(barrierRule(lane + byLane(anywhere, "l"), anywhere, bar), "-; ");
  // Lanes that a branch has diverged must reconverge.
  std::string matrix =
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%rd2];\n";
  EXPECT_EQ(
      barrierRule(lane + "@%p3 bra l;\nmov.b32 %r1, 0;\nl:\n", matrix, bar),
      "-; ");
  EXPECT_EQ(barrierRule("", matrix, bar), kNeighbours);
}

} // namespace
