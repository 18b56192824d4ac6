//===- BarrierTest.cpp - tests of barriers and deadlock ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

const char kHead[] = ".extern .shared .align 16 .b8 sm[];";

/// The first error of several seeds, or none.
std::string errorOf(const std::string &text, int64_t threads,
                    uint64_t seeds = kSeeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(std::vector<uint32_t>(256, 1));
    moert::Status status = kernel.run(1, threads, 1024);
    if (!status)
      return status.message();
  }
  return "";
}

/// Threads write their number, and read that of a thread of another warp.
const char kExchange[] = "mul.wide.u32 %rd2, %r0, 4;\n"
                         "mov.b64 %rd3, sm;\nadd.s64 %rd4, %rd3, %rd2;\n"
                         "st.shared.b32 [%rd4], %r0;\n"
                         "bar.sync 0;\n"
                         "xor.b32 %r1, %r0, 32;\nmul.wide.u32 %rd5, %r1, 4;\n"
                         "add.s64 %rd6, %rd3, %rd5;\n"
                         "ld.shared.b32 %r2, [%rd6];";

TEST(Barrier, OrdersTheCta) {
  std::string text = kernelText(kExchange, 1, 64, kHead);
  EXPECT_EQ(errorOf(text, 64), "");
  std::string error = errorOf(without(text, "bar.sync 0;"), 64);
  EXPECT_TRUE(error.find("race") != std::string::npos ||
              error.find("never written") != std::string::npos)
      << error;
}

TEST(Barrier, NamedBarriersOrderTheirWarps) {
  std::string text = kernelText(
      replaced(kExchange, "bar.sync 0;", "bar.sync 3, 64;"), 1, 64, kHead);
  EXPECT_EQ(errorOf(text, 64), "");
  EXPECT_NE(errorOf(replaced(text, "bar.sync 3, 64;", "bar.sync 3, 32;"), 64),
            "");
}

TEST(Barrier, ArriveReleases) {
  std::string text = kernelText("setp.lt.u32 %p1, %r0, 32;\n"
                                "@!%p1 bra consumer;\n"
                                "setp.eq.b32 %p2, %r0, 0;\n"
                                "@%p2 st.shared.b32 [sm], %r0;\n"
                                "bar.arrive 1, 64;\nret;\n"
                                "consumer:\nbar.sync 1, 64;\n"
                                "ld.shared.b32 %r1, [sm];",
                                1, 64, kHead);
  EXPECT_EQ(errorOf(text, 64), "");
  EXPECT_MESSAGE(errorOf(without(text, "bar.arrive 1, 64;"), 64), "deadlock");
  EXPECT_NE(errorOf(without(text, "bar.sync 1, 64;"), 64), "");
}

TEST(Barrier, LeftHalfArrived) {
  EXPECT_MESSAGE(errorOf(kernelText("bar.arrive 2, 64;", 1, 32, kHead), 32),
                 "barrier 2 half arrived");
}

TEST(Barrier, DeadlockShowsEachBarrier) {
  std::string text = kernelText("setp.lt.u32 %p1, %r0, 32;\n"
                                "@%p1 bar.sync 1, 64;\n"
                                "@!%p1 bar.sync 2, 64;",
                                1, 64, kHead);
  std::string error = errorOf(text, 64);
  EXPECT_MESSAGE(error, "deadlock");
  EXPECT_MESSAGE(error, "barrier 1: 32 of 64 threads have arrived");
  EXPECT_MESSAGE(error, "barrier 2: 32 of 64 threads have arrived");
  EXPECT_MESSAGE(error, "warp 1");
}

TEST(Barrier, WarpSyncOrdersLanes) {
  std::string text = kernelText("mul.wide.u32 %rd2, %r0, 4;\n"
                                "mov.b64 %rd3, sm;\nadd.s64 %rd4, %rd3, %rd2;\n"
                                "st.shared.b32 [%rd4], %r0;\n"
                                "bar.warp.sync -1;\n"
                                "xor.b32 %r1, %r0, 1;\n"
                                "mul.wide.u32 %rd5, %r1, 4;\n"
                                "add.s64 %rd6, %rd3, %rd5;\n"
                                "ld.shared.b32 %r2, [%rd6];",
                                1, 32, kHead);
  EXPECT_EQ(errorOf(text, 32), "");
  EXPECT_MESSAGE(errorOf(without(text, "bar.warp.sync -1;"), 32), "race");
}

TEST(Barrier, WarpInstructionsNeedTheirLanes) {
  EXPECT_MESSAGE(errorOf(kernelText("setp.lt.u32 %p1, %r0, 16;\n"
                                    "@%p1 shfl.sync.idx.b32 %r1, %r0, 0, 31, "
                                    "-1;",
                                    1),
                         32),
                 "member mask");
  EXPECT_MESSAGE(errorOf(kernelText("setp.lt.u32 %p1, %r0, 16;\n"
                                    "@%p1 bra low;\n"
                                    "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\n"
                                    "ret;\nlow:\n"
                                    "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
                                    1),
                         32),
                 "deadlock");
}

/// Two warps pass a word back and forth, six times.
std::string pingPong() {
  return kernelText(
      "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra made;\n"
      "mbarrier.init.shared.b64 [sm], 1;\n"
      "mbarrier.init.shared.b64 [sm+8], 1;\n"
      "made:\nbar.sync 0;\n"
      "mov.b32 %r1, 0;\n"
      "setp.ge.u32 %p2, %r0, 32;\n@%p2 bra consumer;\n"
      "setp.ne.b32 %p3, %r0, 0;\n@%p3 bra end;\n"
      "produce:\nand.b32 %r2, %r1, 1;\nxor.b32 %r3, %r2, 1;\n"
      "w0:\nmbarrier.try_wait.parity.shared.b64 %p4, [sm+8], %r3;\n"
      "@!%p4 bra w0;\n"
      "st.shared.b32 [sm+16], %r1;\n"
      "mbarrier.arrive.shared.b64 _, [sm];\n"
      "add.s32 %r1, %r1, 1;\nsetp.lt.u32 %p5, %r1, 6;\n@%p5 bra produce;\n"
      "bra end;\n"
      "consumer:\nand.b32 %r2, %r1, 1;\n"
      "w1:\nmbarrier.try_wait.parity.shared.b64 %p4, [sm], %r2;\n"
      "@!%p4 bra w1;\n"
      "ld.shared.b32 %r4, [sm+16];\nsetp.ne.b32 %p6, %r4, %r1;\n@%p6 trap;\n"
      "bar.warp.sync -1;\n"
      "setp.eq.b32 %p7, %r0, 32;\n"
      "@%p7 mbarrier.arrive.shared.b64 _, [sm+8];\n"
      "add.s32 %r1, %r1, 1;\nsetp.lt.u32 %p5, %r1, 6;\n@%p5 bra consumer;\n"
      "end:\n",
      1, 64, kHead);
}

TEST(Mbarrier, HandsOver) { EXPECT_EQ(errorOf(pingPong(), 64, 32), ""); }

TEST(Mbarrier, MutantsDie) {
  std::string text = pingPong();
  EXPECT_NE(errorOf(without(text, "@!%p4 bra w0;"), 64), "");
  EXPECT_NE(errorOf(without(text, "@!%p4 bra w1;"), 64), "");
  EXPECT_MESSAGE(
      errorOf(without(text, "mbarrier.arrive.shared.b64 _, [sm];"), 64),
      "deadlock");
  EXPECT_MESSAGE(
      errorOf(without(text, "@%p7 mbarrier.arrive.shared.b64 _, [sm+8];"), 64),
      "deadlock");
  EXPECT_MESSAGE(errorOf(without(text, "bar.warp.sync -1;"), 64), "race");
  EXPECT_NE(
      errorOf(replaced(text, "xor.b32 %r3, %r2, 1;", "mov.b32 %r3, %r2;"), 64),
      "");
  EXPECT_NE(errorOf(without(text, "bar.sync 0;"), 64), "");
}

TEST(Mbarrier, Misuse) {
  auto error = [&](const std::string &body) {
    return errorOf(kernelText(body, 1, 1, kHead), 1, 1);
  };
  EXPECT_MESSAGE(error("mbarrier.arrive.shared.b64 _, [sm];"),
                 "there is no mbarrier");
  EXPECT_MESSAGE(error("mbarrier.init.shared.b64 [sm], 1;\n"
                       "mbarrier.init.shared.b64 [sm], 1;"),
                 "there is an mbarrier already");
  EXPECT_MESSAGE(error("mbarrier.init.shared.b64 [sm], 2;\n"
                       "mbarrier.arrive.shared.b64 _, [sm], 3;"),
                 "more arrivals");
  EXPECT_MESSAGE(error("mbarrier.init.shared.b64 [sm], 2;\n"
                       "mbarrier.arrive.shared.b64 _, [sm];"),
                 "that is not complete");
  EXPECT_MESSAGE(error("mbarrier.init.shared.b64 [sm], 1;\n"
                       "mbarrier.arrive.expect_tx.shared.b64 _, [sm], 16;"),
                 "16 bytes are missing");
}

/// One instruction cannot arrive for two phases.
TEST(Mbarrier, LanesBeyondThePhase) {
  std::string text =
      kernelText("setp.ne.b32 %p1, %r0, 0;\n@%p1 bra made;\n"
                 "mbarrier.init.shared.b64 [sm], 16;\nmade:\nbar.sync 0;\n"
                 "mbarrier.arrive.shared.b64 _, [sm];",
                 1, 32, kHead);
  EXPECT_MESSAGE(errorOf(text, 32),
                 "lanes with more arrivals than the mbarrier still expects");
  EXPECT_EQ(errorOf(replaced(text, "[sm], 16", "[sm], 32"), 32), "");
}

TEST(Registers, WaitForEachOther) {
  // One warpgroup releases the registers that the other takes.
  std::string text = kernelText("setp.lt.u32 %p1, %r0, 128;\n@%p1 bra give;\n"
                                "setmaxnreg.inc.sync.aligned.u32 240;\nret;\n"
                                "give:\nsetmaxnreg.dec.sync.aligned.u32 40;",
                                1, 384, kHead);
  EXPECT_MESSAGE(errorOf(text, 384), "deadlock");
  text = replaced(text, "u32 240", "u32 232");
  EXPECT_EQ(errorOf(text, 384), "");
  // The kernel starts with fewer registers than the multiprocessor has.
  text = replaced(text, "{\n", ".maxnreg 80\n{\n");
  EXPECT_MESSAGE(errorOf(text, 384), "deadlock");
  text = replaced(text, "u32 232", "u32 96");
  EXPECT_EQ(errorOf(text, 384), "");
}

} // namespace
