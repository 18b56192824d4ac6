//===- LeakTest.cpp - tests of leaks and of positions -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

const char kHead[] = ".file 1 \"layer.tile.mlir\"\n"
                     ".extern .shared .align 1024 .b8 sm[];";

/// The message of a kernel of 32 threads with one buffer of 1 KiB, which must
/// be equal for all schedules.
std::string messageOf(const std::string &body) {
  std::string first;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(kernelText(body, 1, 32, kHead), seed);
    kernel.input(std::vector<uint32_t>(256, 7));
    std::string message = kernel.run(1, 32, 2048).message();
    if (seed == 0)
      first = message;
    EXPECT_EQ(message, first) << "seed " << seed;
  }
  return first;
}

void expectEnd(const std::string &message, const std::string &end) {
  ASSERT_GE(message.size(), end.size()) << message;
  EXPECT_EQ(message.substr(message.size() - end.size()), end);
}

//===----------------------------------------------------------------------===//
// Unfinished work of a CTA
//===----------------------------------------------------------------------===//

TEST(Leaks, CopyOfAThread) {
  expectEnd(messageOf("setp.ne.b32 %p1, %r0, 5;\n@%p1 bra out;\n"
                      ".loc 1 33 5\n"
                      "cp.async.cg.shared.global [sm], [%rd0], 16;\nout:"),
            "cta 0 of 'k' has ended with a copy without a wait: "
            "test.ptx:20 (layer.tile.mlir:33:5) 'cp.async.cg.shared.global "
            "[sm], [%rd0], 16' of thread 5 (warp 0, lane 5); wait for it "
            "first");
}

/// One thread writes 16 bytes of shared memory and stores them.
std::string storeText() {
  return "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra out;\n"
         "st.shared.b64 [sm], %rd0;\nst.shared.b64 [sm+8], %rd0;\n"
         "fence.proxy.async.shared::cta;\n"
         "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [sm], 16;\n"
         "cp.async.bulk.commit_group;\n"
         "cp.async.bulk.wait_group.read 0;\nout:";
}

TEST(Leaks, BulkStore) {
  EXPECT_EQ(messageOf(storeText()), "");
  std::string leak = "has ended with a bulk copy without a wait, which may "
                     "still read its shared memory: test.ptx:22 "
                     "'cp.async.bulk.global.shared::cta.bulk_group [%rd0], "
                     "[sm], 16' of thread 0 (warp 0, lane 0); wait for it "
                     "first";
  expectEnd(messageOf(without(storeText(), "cp.async.bulk.wait_group.read 0;")),
            leak);
  expectEnd(messageOf(replaced(storeText(), ".read 0", ".read 1")), leak);
  expectEnd(messageOf(without(storeText(), "cp.async.bulk.commit_group;")),
            leak);
}

/// One thread loads 16 bytes of shared memory and waits for them.
std::string loadText() {
  return "setp.ne.b32 %p1, %r0, 3;\n@%p1 bra out;\n"
         "mbarrier.init.shared.b64 [sm+1024], 1;\n"
         "fence.proxy.async.shared::cta;\n"
         "mbarrier.arrive.expect_tx.shared.b64 _, [sm+1024], 16;\n"
         ".loc 1 8 0\n"
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
         "[sm], [%rd0], 16, [sm+1024];\n"
         "mov.b32 %r1, 0;\n"
         "again: mbarrier.try_wait.parity.shared.b64 %p2, [sm+1024], %r1;\n"
         "@!%p2 bra again;\nout:";
}

TEST(Leaks, BytesThatNobodyWaitsFor) {
  EXPECT_EQ(messageOf(loadText()), "");
  // The leak is found whether the copy completes early or late.
  std::string text =
      without(without(loadText(), "@!%p2 bra again;"),
              "mbarrier.try_wait.parity.shared.b64 %p2, [sm+1024], %r1;");
  size_t inTime = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(
        kernelText(replaced(text, "mov.b32 %r1, 0;",
                            "mov.b32 %r1, 0;\nmore: nanosleep.u32 1;\n"
                            "add.s32 %r1, %r1, 1;\n"
                            "setp.lt.s32 %p3, %r1, 200;\n@%p3 bra more;"),
                   1, 32, kHead),
        seed);
    kernel.input(std::vector<uint32_t>(256, 7));
    std::string message = kernel.run(1, 32, 2048).message();
    inTime += message.find("bytes without a wait, of phase 0 of "
                           "the mbarrier at shared address 2048: test.ptx:23 "
                           "(layer.tile.mlir:8)") != std::string::npos;
    EXPECT_NE(message.find("has ended with"), std::string::npos) << message;
  }
  EXPECT_GT(inTime, 0u);
}

TEST(Leaks, PhaseOfAnMbarrier) {
  expectEnd(messageOf("setp.ne.b32 %p1, %r0, 9;\n@%p1 bra out;\n"
                      "mbarrier.init.shared.b64 [sm], 2;\n"
                      "mbarrier.arrive.shared.b64 _, [sm];\nout:"),
            "has ended with a phase of the mbarrier at shared address 1024 "
            "that is not complete: 1 of 2 arrivals and 0 bytes are missing; "
            "last used by test.ptx:20 'mbarrier.arrive.shared.b64 _, [sm]' of "
            "thread 9 (warp 0, lane 9)");
}

TEST(Leaks, ArrivalAtABarrier) {
  expectEnd(messageOf("bar.arrive 3, 64;"),
            "cta 0 of 'k' has ended with barrier 3 half arrived: 32 of 64 "
            "threads, the last by test.ptx:17 'bar.arrive 3, 64' of thread 0 "
            "(warp 0, lane 0)");
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

TEST(Positions, LineOfPtxAndOfIrAndThread) {
  expectEnd(messageOf(".loc 1 4 0\nmov.b32 %r1, 1;\n.loc 1 12 7\n"
                      "ld.global.b32 %r2, [%rd0+1];"),
            "test.ptx:20 (layer.tile.mlir:12:7): 'k', cta 0, thread 0 (warp 0, "
            "lane 0): 'ld.global.b32 %r2, [%rd0+1]': the address "
            "0x700000000101 is not a multiple of 4");
}

TEST(Positions, CodeOfSeveralLinesIsOfTheKernel) {
  EXPECT_NE(messageOf(".loc 1 4 0\nmov.b32 %r1, 1;\n.loc 1 0 7\n"
                      "ld.global.b32 %r2, [%rd0+1];")
                .find("test.ptx:20 (layer.tile.mlir:4): 'k'"),
            std::string::npos);
  EXPECT_NE(messageOf(".loc 1 0 7\nld.global.b32 %r2, [%rd0+1];")
                .find("test.ptx:18: 'k'"),
            std::string::npos);
}

} // namespace
