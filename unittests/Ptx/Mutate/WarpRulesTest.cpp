//===- WarpRulesTest.cpp - lanes that need no barrier -----------*- C++ -*-===//
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

const char kNeighbours[] = "stronger neighbours; ";
const char kNone[] = "-; ";

/// %rd1 is each thread's 16 bytes of `one`; %p1 is false in the first lane of a
/// warp, %p2 in the second.
const char kPlaces[] = "mul.wide.u32 %rd10, %r0, 16;\nmov.b64 %rd11, one;\n"
                       "add.s64 %rd1, %rd11, %rd10;\nand.b32 %r1, %r0, 31;\n"
                       "setp.ne.b32 %p1, %r1, 0;\nsetp.ne.b32 %p2, %r1, 1;\n"
                       "shl.b32 %r2, %r1, 4;\ncvt.u64.u32 %rd12, %r2;\n"
                       "add.s64 %rd2, %rd12, %rd11;\n";
const char kBarrier[] = "bar.warp.sync -1;\n";

std::string rulesOfBarrier(const std::string &before, const std::string &after,
                           bool haveSurvived = false) {
  return rulesFor(kPlaces + before + kBarrier + after, "warp barrier",
                  /*threads=*/64, haveSurvived);
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// A write to byte `place` of the variable by the lane that `guard` selects.
std::string writeAt(int place, const char *guard) {
  return std::string("@") + guard + " bra l;\nst.shared.v4.b32 [one+" +
         std::to_string(place) + "], {0, 0, 0, 0};\nl:\n";
}

TEST(WarpRules, PlacesOfThreadsAreNumbers) {
  std::string read = "ld.shared.b32 %r3, [%rd1];\n";
  // Threads 0 and 32 read what they wrote themselves.
  EXPECT_EQ(rulesOfBarrier(read, writeAt(0, "%p1")), kNeighbours);
  EXPECT_EQ(rulesOfBarrier(read, writeAt(512, "%p1")), kNeighbours);
  // Two words of thread 31 and two of thread 32's own.
  EXPECT_EQ(rulesOfBarrier(read, writeAt(504, "%p1")), kNeighbours);
  EXPECT_EQ(rulesOfBarrier(read, writeAt(16, "%p1")), kNone);
  EXPECT_EQ(rulesOfBarrier(read, writeAt(496, "%p1")), kNone);
  EXPECT_EQ(rulesOfBarrier(read, writeAt(0, "%p2")), kNone);
  // None of 1024 threads accesses that offset.
  EXPECT_EQ(rulesOfBarrier(read, writeAt(16 * 1024, "%p2")), kNeighbours);
  // Each lane has its own location, through another register.
  EXPECT_EQ(rulesOfBarrier("ld.shared.b32 %r3, [%rd2];\n",
                           "st.shared.b32 [%rd2+12], %r0;\n"),
            kNeighbours);
  EXPECT_EQ(rulesOfBarrier("ld.shared.b32 %r3, [%rd2];\n",
                           "st.shared.b32 [%rd2+16], %r0;\n"),
            kNone);
}

TEST(WarpRules, PlacesThatAreNotKnown) {
  std::string unknown = "ld.shared.b32 %r4, [two];\n"
                        "mul.wide.u32 %rd13, %r4, 16;\n"
                        "add.s64 %rd3, %rd11, %rd13;\n";
  std::string write = "st.shared.b32 [%rd1+4096], %r0;\n";
  EXPECT_EQ(rulesFor(kPlaces + unknown + "ld.shared.b32 %r3, [%rd3];\n" +
                         kBarrier + write,
                     "warp barrier"),
            kNone);
  // The register is written twice.
  EXPECT_EQ(rulesFor(std::string(kPlaces) +
                         "mov.b32 %r5, 0;\nl:\nadd.s32 %r5, %r5, 64;\n"
                         "mul.wide.u32 %rd14, %r5, 16;\n"
                         "add.s64 %rd4, %rd11, %rd14;\n"
                         "ld.shared.b32 %r3, [%rd4];\n" +
                         kBarrier + write + "@%p3 bra l;\n",
                     "warp barrier"),
            kNone);
  // Twice the variable's address is no address in it.
  EXPECT_EQ(rulesFor(std::string(kPlaces) + "add.s64 %rd5, %rd1, %rd11;\n" +
                         "ld.shared.b32 %r3, [%rd5];\n" + kBarrier +
                         "st.shared.b32 [%rd2+16], %r0;\n",
                     "warp barrier"),
            kNone);
}

//===----------------------------------------------------------------------===//
// Waits and MMAs
//===----------------------------------------------------------------------===//

const char kWait[] = "w:\nmbarrier.try_wait.parity.shared.b64 %p4, [sm], 0;\n"
                     "@!%p4 bra w;\n";
const char kProduct[] =
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
    "{%r20, %r21, %r22, %r23}, %rd20, %rd21, %p5, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";

TEST(WarpRules, WaitsTellNobody) {
  std::string read = "ld.shared.b32 %r3, [%rd1];\n";
  std::string write = "st.shared.b32 [%rd1], %r0;\n";
  EXPECT_EQ(rulesOfBarrier(read, kWait + read), kNeighbours);
  EXPECT_EQ(rulesOfBarrier(write, kWait), kNeighbours);
  EXPECT_EQ(rulesOfBarrier(write, kWait + std::string(kBarrier)),
            kNeighbours + std::string(kNeighbours));
  EXPECT_EQ(rulesOfBarrier(write, "ld.shared.b32 %r3, [%rd1+16];\n"), kNone);
  // One lane waits, and the others rely on it.
  EXPECT_EQ(rulesOfBarrier(kWait, read), kNone);
  EXPECT_EQ(rulesOfBarrier(read, "mbarrier.arrive.shared.b64 %rd20, [sm];\n"),
            kNone);
  EXPECT_EQ(rulesOfBarrier("mbarrier.arrive.shared.b64 %rd20, [sm];\n", kWait),
            kNone);
  // A CTA barrier has to order all threads of the CTA.
  EXPECT_EQ(rulesFor(kPlaces + read + "bar.sync 0;\n" + kWait, "CTA barrier"),
            kNone);
}

TEST(WarpRules, ProductsReadSharedMemory) {
  EXPECT_EQ(rulesOfBarrier("ld.shared.b32 %r3, [%rd1];\n", kProduct),
            kNeighbours);
  EXPECT_EQ(rulesOfBarrier("st.global.b32 [%rd0], %r0;\n", kProduct),
            kNeighbours);
  EXPECT_EQ(rulesOfBarrier("st.shared.b32 [%rd1], %r0;\n", kProduct), kNone);
  EXPECT_EQ(rulesOfBarrier("st.b32 [%rd1], %r0;\n", kProduct), kNone);
  EXPECT_EQ(rulesOfBarrier(kProduct, "ld.shared.b32 %r3, [%rd1];\n"), kNone);
}

TEST(WarpRules, LanesComeTogether) {
  std::string parted = "@%p1 bra l;\nld.shared.b32 %r3, [%rd1];\nl:\n";
  std::string vote = "vote.sync.ballot.b32 %r6, %p1, ";
  EXPECT_EQ(rulesOfBarrier(parted, kProduct), kNone);
  EXPECT_EQ(rulesOfBarrier(parted, vote + "-1;\n" + kProduct), kNeighbours);
  // Not all lanes, not on every path, or too late.
  EXPECT_EQ(rulesOfBarrier(parted, vote + "15;\n" + kProduct), kNone);
  EXPECT_EQ(rulesOfBarrier(parted, "@%p6 " + vote + "-1;\n" + kProduct), kNone);
  EXPECT_EQ(
      rulesOfBarrier(parted, "@%p6 bra m;\n" + vote + "-1;\nm:\n" + kProduct),
      kNone);
  EXPECT_EQ(rulesOfBarrier(parted, kProduct + vote + "-1;\n"), kNone);
  EXPECT_EQ(rulesOfBarrier(parted, "activemask.b32 %r7;\n"), kNone);
}

//===----------------------------------------------------------------------===//
// Other buffers
//===----------------------------------------------------------------------===//

TEST(WarpRules, OtherBuffers) {
  std::string buffers = "ld.param.b64 %rd20, [p0];\nld.param.b64 %rd21, [p1];\n"
                        "add.s64 %rd22, %rd20, %rd10;\n"
                        "add.s64 %rd23, %rd21, 64;\n";
  std::string write = "st.global.b32 [%rd22], %r0;\n";
  auto rules = [&](const std::string &after, bool haveSurvived) {
    return rulesOfBarrier(buffers + write, after, haveSurvived);
  };
  const std::string other = "other buffers; ";
  EXPECT_EQ(rules("ld.global.b32 %r3, [%rd23];\n", true), other);
  EXPECT_EQ(rules("ld.global.b32 %r3, [%rd23];\n", false), kNone);
  EXPECT_EQ(rules("ld.global.b32 %r3, [%rd20];\n", true), kNone);
  EXPECT_EQ(rules("ld.b32 %r3, [%rd23];\n", true), kNone);
  // An address that was loaded, or is the sum of both.
  EXPECT_EQ(
      rules("ld.global.b64 %rd24, [%rd23];\nld.global.b32 %r3, [%rd24];\n",
            true),
      kNone);
  EXPECT_EQ(rules("sub.s64 %rd24, %rd20, %rd21;\nadd.s64 %rd25, %rd24, %rd21;\n"
                  "ld.global.b32 %r3, [%rd24];\n",
                  true),
            kNone);
  EXPECT_EQ(rules("add.s64 %rd24, %rd20, %rd21;\nld.global.b32 %r3, [%rd24];\n",
                  true),
            kNone);
}

} // namespace
