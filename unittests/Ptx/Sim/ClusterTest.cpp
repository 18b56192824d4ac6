//===- ClusterTest.cpp - tests of clusters of CTAs --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

#include <numeric>

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

const char kHead[] = ".extern .shared .align 1024 .b8 sm[];";
const char kClusterBarrier[] =
    "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n";

/// A kernel of clusters of two CTAs of 32 threads.
std::string clusterText(const std::string &body, unsigned numParams) {
  return replaced(kernelText(body, numParams, 32, kHead), ".reqntid 32",
                  ".reqntid 32\n.explicitcluster\n.reqnctapercluster 2, 1, 1");
}

/// In four rounds, each CTA of a cluster of two loads half of 512 bytes to both
/// CTAs, into one stage of shared memory. Full at 2048: the bytes of both
/// halves; empty at 2056: a thread of each CTA, which has read the stage. Each
/// CTA writes what it has read to its own 2048 bytes of p1.
std::string multicastKernel() {
  return clusterText(
      "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r20, %ctaid.x;\n"
      "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra made;\n"
      "mbarrier.init.shared.b64 [sm+2048], 1;\n"
      "mbarrier.init.shared.b64 [sm+2056], 2;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "made:\n"
      "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
      "mov.b32 %r2, 0;\n"
      "xor.b32 %r3, %r1, 1;\n"
      "mov.b32 %r4, sm;\nadd.s32 %r4, %r4, 2056;\n"
      "mapa.shared::cluster.u32 %r5, %r4, %r3;\n"
      "mov.b32 %r6, sm;\nadd.s32 %r6, %r6, 2048;\n"
      "shl.b32 %r7, %r1, 8;\nmov.b32 %r8, sm;\nadd.s32 %r8, %r8, %r7;\n"
      "mov.b16 %rs0, 3;\n"
      "round:\nand.b32 %r9, %r2, 1;\n"
      "@%p1 bra wait;\n"
      "xor.b32 %r10, %r9, 1;\n"
      "empty:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, "
      "[sm+2056], %r10;\n"
      "@!%p2 bra empty;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [sm+2048], 512;\n"
      "shl.b32 %r11, %r2, 9;\nadd.s32 %r11, %r11, %r7;\n"
      "mul.wide.u32 %rd2, %r11, 1;\nadd.s64 %rd3, %rd0, %rd2;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "multicast::cluster [%r8], [%rd3], 256, [%r6], %rs0;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, "
      "[sm+2048], %r9;\n"
      "@!%p3 bra wait;\n"
      "mul.wide.u32 %rd4, %r0, 16;\nmov.b64 %rd5, sm;\n"
      "add.s64 %rd6, %rd5, %rd4;\n"
      "ld.shared.v4.b32 {%r12, %r13, %r14, %r15}, [%rd6];\n"
      "shl.b32 %r16, %r20, 11;\nshl.b32 %r17, %r2, 9;\n"
      "add.s32 %r16, %r16, %r17;\nmul.wide.u32 %rd7, %r16, 1;\n"
      "add.s64 %rd8, %rd1, %rd7;\nadd.s64 %rd8, %rd8, %rd4;\n"
      "st.global.v4.b32 [%rd8], {%r12, %r13, %r14, %r15};\n"
      "bar.warp.sync -1;\n"
      "@%p1 bra next;\n"
      "mbarrier.arrive.release.cta.shared::cta.b64 _, [sm+2056];\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
      "next:\nbar.warp.sync -1;\n"
      "add.s32 %r2, %r2, 1;\nsetp.lt.u32 %p4, %r2, 4;\n@%p4 bra round;\n"
      "barrier.cluster.arrive;\nbarrier.cluster.wait;",
      2);
}

/// The first error of some seeds.
std::string errorOf(const std::string &text, uint64_t seeds = kSeeds) {
  constexpr uint32_t kCtas = 4, kWords = 512;
  std::vector<uint32_t> words(kWords);
  std::iota(words.begin(), words.end(), 0);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    if (!kernel.loaded)
      return kernel.loaded.message();
    kernel.input(words);
    uint64_t result = kernel.output(kCtas * kWords * 4);
    if (moert::Status status = kernel.run(kCtas, 32, 2064); !status)
      return status.message();
    std::vector<uint32_t> values =
        kernel.read<uint32_t>(result, kCtas * kWords);
    for (uint32_t i = 0; i < values.size(); ++i)
      if (values[i] != i % kWords)
        return "word " + std::to_string(i) + " is " + std::to_string(values[i]);
    // A multicast reads its bytes once.
    EXPECT_EQ(kernel.simulator.statistics().work,
              (Work{kCtas * 4, kCtas * 4 * 256, 0}));
  }
  return "";
}

TEST(Cluster, MulticastsToBoth) {
  EXPECT_EQ(errorOf(multicastKernel(), 32), "");
}

TEST(Cluster, MutantsOfBarriersDie) {
  std::string text = multicastKernel();
  // Without the barrier at the start, an mbarrier may not exist yet.
  EXPECT_NE(errorOf(without(text, kClusterBarrier)), "");
  EXPECT_MESSAGE(
      errorOf(without(text, "barrier.cluster.arrive;\nbarrier.cluster.wait;")),
      "ended");
  EXPECT_MESSAGE(errorOf(without(text, "barrier.cluster.wait;")),
                 "an arrival at the cluster's barrier without a wait");
  EXPECT_MESSAGE(errorOf(without(text, "barrier.cluster.arrive;")),
                 "without a barrier.cluster.arrive");
  EXPECT_NE(errorOf(replaced(text, "arrive.release;", "arrive.relaxed;")), "");
  EXPECT_NE(errorOf(without(text, "fence.mbarrier_init.release.cluster;")), "");
}

TEST(Cluster, MutantsOfArrivalsDie) {
  std::string text = multicastKernel();
  std::string remote = "mbarrier.arrive.release.cluster.shared::cluster";
  EXPECT_MESSAGE(errorOf(without(text, remote + ".b64 _, [%r5];")), "deadlock");
  // An arrival of scope cta orders nothing in another CTA.
  EXPECT_MESSAGE(
      errorOf(replaced(text, remote,
                       "mbarrier.arrive.release.cta.shared::cluster")),
      "race");
  EXPECT_MESSAGE(
      errorOf(replaced(text, remote,
                       "mbarrier.arrive.relaxed.cluster.shared::cluster")),
      "race");
  // Nor does a wait of scope cta acquire what another CTA has done.
  for (const char *pair : {"empty:\nmbarrier.try_wait.parity.acquire.cluster",
                           "wait:\nmbarrier.try_wait.parity.acquire.cluster"}) {
    std::string narrow = pair;
    narrow.replace(narrow.find("cluster"), 7, "cta");
    EXPECT_MESSAGE(errorOf(replaced(text, pair, narrow)), "race");
  }
  EXPECT_NE(errorOf(replaced(text, "[sm+2056], 2;", "[sm+2056], 1;")), "");
}

TEST(Cluster, MutantsOfMulticastsDie) {
  std::string text = multicastKernel();
  EXPECT_NE(errorOf(replaced(text, "%rs0, 3", "%rs0, 1")), "");
  EXPECT_NE(errorOf(replaced(text, "%rs0, 3", "%rs0, 2")), "");
  EXPECT_MESSAGE(errorOf(replaced(text, "%rs0, 3", "%rs0, 7")),
                 "the multicast mask 7 names no CTAs, or others than the 2");
  EXPECT_MESSAGE(errorOf(replaced(text, "%rs0, 3", "%rs0, 0")),
                 "the multicast mask 0");
  EXPECT_NE(errorOf(replaced(text, "[sm+2048], 512", "[sm+2048], 256")), "");
  EXPECT_NE(errorOf(replaced(text, "[sm+2048], 512", "[sm+2048], 528")), "");
}

TEST(Cluster, WritesToAnotherCta) {
  // Each lane writes to the other CTA, which reads after the barrier.
  std::string text = clusterText(
      "mov.u32 %r1, %cluster_ctarank;\nxor.b32 %r2, %r1, 1;\n"
      "mov.u32 %r3, %ctaid.x;\nmad.lo.s32 %r4, %r3, 32, %r0;\n"
      "mov.b32 %r5, sm;\nmad.lo.s32 %r6, %r0, 4, %r5;\n"
      "mapa.shared::cluster.u32 %r7, %r6, %r2;\n"
      "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
      "st.shared::cluster.b32 [%r7], %r4;\n"
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
      "ld.shared.b32 %r8, [%r6];\n"
      "mul.wide.u32 %rd2, %r4, 4;\nadd.s64 %rd3, %rd0, %rd2;\n"
      "st.global.b32 [%rd3], %r8;",
      1);
  auto run = [](const std::string &kernel, int64_t grid) -> std::string {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      KernelRun made(kernel, seed);
      uint64_t result = made.output(128 * 4);
      if (moert::Status status = made.run(grid, 32, 128); !status)
        return status.message();
      std::vector<uint32_t> values = made.read<uint32_t>(result, 128);
      for (uint32_t i = 0; i < 128; ++i)
        EXPECT_EQ(values[i], i ^ 32);
    }
    return "";
  };
  EXPECT_EQ(run(text, 4), "");
  EXPECT_MESSAGE(run(text, 3), "a multiple of the 2 CTAs of a cluster");
  std::string aligned =
      "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
  EXPECT_NE(run(without(text, aligned), 4), "");
  EXPECT_MESSAGE(run(replaced(text, "st.shared::cluster", "st.shared::cta"), 4),
                 "out of bounds");
  EXPECT_MESSAGE(run(replaced(text, "%r6, %r2;", "%r6, 2;"), 4),
                 "there is no CTA 2 in a cluster of 2");
}

TEST(Cluster, SizesOfClusters) {
  KernelRun wide(replaced(clusterText("ret;", 0), "2, 1, 1", "16, 1, 1"));
  EXPECT_MESSAGE(wide.loaded.message(), "up to 8 CTAs");
  KernelRun flat(replaced(clusterText("ret;", 0), "2, 1, 1", "1, 2, 1"));
  EXPECT_MESSAGE(flat.loaded.message(), "one dimension");
}

} // namespace
