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
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, "
      "[sm+2056], %r10;\n"
      "@!%p2 bra empty;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [sm+2048], 512;\n"
      "shl.b32 %r11, %r2, 9;\nadd.s32 %r11, %r11, %r7;\n"
      "mul.wide.u32 %rd2, %r11, 1;\nadd.s64 %rd3, %rd0, %rd2;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "multicast::cluster [%r8], [%rd3], 256, [%r6], %rs0;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, "
      "[sm+2048], %r9;\n"
      "@!%p3 bra wait;\n"
      "// begin\n"
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
      "mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r5];\n"
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
  std::string remote = "mbarrier.arrive.release.cta.shared::cluster.b64";
  std::string arrival = remote + " _, [%r5];";
  EXPECT_MESSAGE(errorOf(without(text, arrival)), "deadlock");
  EXPECT_MESSAGE(
      errorOf(replaced(text, remote,
                       "mbarrier.arrive.relaxed.cluster.shared::cluster.b64")),
      "race");
  // Reads behind the arrival may come after the other CTA's next copy.
  EXPECT_MESSAGE(
      errorOf(replaced(without(text, arrival), "// begin", "@!%p1 " + arrival)),
      "race");
  for (const char *pair : {"empty:\nmbarrier.try_wait.parity.acquire.cta",
                           "wait:\nmbarrier.try_wait.parity.acquire.cta"}) {
    std::string changed = pair;
    changed.replace(changed.find("acquire"), 7, "relaxed");
    EXPECT_MESSAGE(errorOf(replaced(text, pair, changed)), "race");
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

//===----------------------------------------------------------------------===//
// Words for all CTAs
//===----------------------------------------------------------------------===//

/// A word for a CTA, at `base`: the bytes follow the mbarrier by 16.
std::string sendTo(const std::string &base) {
  return "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [" + base +
         "], 4;\n"
         "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [" +
         base + "+16], %r9, [" + base + "];\n";
}

/// The same by a store and an arrival of some scope.
std::string storeTo(const std::string &base, const std::string &scope) {
  return "st.shared::cluster.b32 [" + base +
         "+16], %r9;\nmbarrier.arrive.release." + scope +
         ".shared::cluster.b64 _, [" + base + "];\n";
}

/// In four rounds, a thread of the first CTA of a cluster of two executes
/// `sends`, which write 40 and the round to both CTAs (%r3, %r4), as soon as
/// both have read the word before. Their threads wait with `scope`, and write
/// it to p0.
std::string wordKernel(const std::string &sends,
                       const std::string &scope = "cta") {
  return clusterText(
      "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r20, %ctaid.x;\n"
      "setp.ne.b32 %p1, %r0, 0;\nmov.b32 %r2, sm;\n"
      "@%p1 bra made;\n"
      "mbarrier.init.shared.b64 [sm], 1;\n"
      "mbarrier.init.shared.b64 [sm+8], 2;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "made:\n"
      "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
      "mapa.shared::cluster.u32 %r3, %r2, 0;\n"
      "mapa.shared::cluster.u32 %r4, %r2, 1;\n"
      "mov.b32 %r5, 0;\nor.b32 %r6, %r0, %r1;\nsetp.ne.b32 %p2, %r6, 0;\n"
      "round:\nand.b32 %r7, %r5, 1;\n"
      "@%p2 bra full;\n"
      "xor.b32 %r8, %r7, 1;\nadd.s32 %r9, %r5, 40;\n"
      "empty:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 %p3, [sm+8], %r8;\n"
      "@!%p3 bra empty;\n" +
          sends +
          "full:\n"
          "mbarrier.try_wait.parity.acquire." +
          scope +
          ".shared::cta.b64 %p4, [sm], %r7;\n"
          "@!%p4 bra full;\n"
          "ld.shared.b32 %r10, [sm+16];\n"
          "bar.warp.sync -1;\n"
          "@%p1 bra next;\n"
          "mbarrier.arrive.shared::cluster.b64 _, [%r3+8];\n"
          "shl.b32 %r11, %r20, 2;\nadd.s32 %r11, %r11, %r5;\n"
          "mul.wide.u32 %rd2, %r11, 4;\nadd.s64 %rd3, %rd0, %rd2;\n"
          "st.global.b32 [%rd3], %r10;\n"
          "next:\nbar.warp.sync -1;\n"
          "add.s32 %r5, %r5, 1;\nsetp.lt.u32 %p5, %r5, 4;\n@%p5 bra round;\n"
          "barrier.cluster.arrive;\nbarrier.cluster.wait;",
      1);
}

/// The first error of some seeds.
std::string wordError(const std::string &text) {
  constexpr uint32_t kCtas = 4, kRounds = 4;
  for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
    KernelRun kernel(text, seed);
    if (!kernel.loaded)
      return kernel.loaded.message();
    uint64_t result = kernel.output(size_t(kCtas) * kRounds * 4);
    if (moert::Status status = kernel.run(kCtas, 32, 32); !status)
      return status.message();
    std::vector<uint32_t> values =
        kernel.read<uint32_t>(result, size_t(kCtas) * kRounds);
    for (uint32_t i = 0; i < values.size(); ++i)
      if (values[i] != 40 + i % kRounds)
        return "word " + std::to_string(i) + " is " + std::to_string(values[i]);
  }
  return "";
}

TEST(Cluster, AsyncStoresCarryWords) {
  std::string text = wordKernel(sendTo("%r3") + sendTo("%r4"));
  EXPECT_EQ(wordError(text), "");
  EXPECT_MESSAGE(wordError(without(text, "@!%p4 bra full;")), "race");
  EXPECT_MESSAGE(wordError(without(text, "@!%p3 bra empty;")), "race");
  EXPECT_MESSAGE(wordError(replaced(text, "%r9, [%r4];", "%r9, [%r3];")),
                 "the mbarrier is in another CTA than the bytes");
  EXPECT_MESSAGE(wordError(replaced(text, "[%r4], 4;", "[%r4], 8;")),
                 "deadlock");
  EXPECT_MESSAGE(wordError(replaced(text, "[%r4+16]", "[%r4+18]")),
                 "not a multiple of 4");
  // A reader that frees the word before its last use.
  std::string read = "ld.shared.b32 %r10, [sm+16];\nbar.warp.sync -1;\n";
  std::string arrival = "mbarrier.arrive.shared::cluster.b64 _, [%r3+8];\n";
  EXPECT_MESSAGE(wordError(replaced(replaced(text, read, ""), arrival,
                                    arrival + "ld.shared.b32 %r10, [sm+16];"
                                              "\n")),
                 "race");
}

TEST(Cluster, AsyncStoresCarryNothingElse) {
  // A copy of the sender into its own memory is still in flight.
  std::string text =
      replaced(wordKernel("cp.async.ca.shared.global [sm+20], [%rd0], 4, 0;\n" +
                          sendTo("%r3") + sendTo("%r4")),
               "next:\n", "next:\ncp.async.wait_all;\n");
  EXPECT_EQ(wordError(text), "");
  EXPECT_MESSAGE(wordError(replaced(text, "bar.warp.sync -1;\n",
                                    "setp.eq.b32 %p6, %r1, 0;\n"
                                    "@%p6 ld.shared.b32 %r12, [sm+20];\n"
                                    "bar.warp.sync -1;\n")),
                 "a copy in flight");
}

TEST(Cluster, StoresNeedScopeCluster) {
  auto run = [](const char *arrives, const char *waits) {
    return wordError(
        wordKernel(storeTo("%r3", arrives) + storeTo("%r4", arrives), waits));
  };
  EXPECT_EQ(run("cluster", "cluster"), "");
  EXPECT_MESSAGE(run("cta", "cluster"), "race");
  EXPECT_MESSAGE(run("cluster", "cta"), "race");
  EXPECT_MESSAGE(run("cta", "cta"), "race");
}

/// The second CTA stores to what the first one has multiplied.
TEST(Cluster, ProductsEndBeforeTheirArrival) {
  constexpr const char *kWait = "wgmma.wait_group.sync.aligned 0;\n";
  std::string arrival =
      "@!%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4+10240];\n";
  std::string body =
      "mov.u32 %r1, %cluster_ctarank;\nsetp.ne.b32 %p1, %r0, 0;\n"
      "setp.ne.b32 %p2, %r1, 0;\nmov.b32 %r2, sm;\n"
      "mad.lo.s32 %r5, %r0, 80, %r2;\nmov.b32 %r6, 0;\n";
  for (unsigned i = 0; i < 80; i += 16)
    body += "st.shared.v4.b32 [%r5+" + std::to_string(i) +
            "], {%r6, %r6, %r6, %r6};\n";
  body += "fence.proxy.async.shared::cta;\n"
          "@%p1 bra made;\n"
          "mbarrier.init.shared.b64 [sm+10240], 1;\n"
          "fence.mbarrier_init.release.cluster;\n"
          "made:\n"
          "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
          "mapa.shared::cluster.u32 %r3, %r2, 0;\n"
          "mapa.shared::cluster.u32 %r4, %r2, 1;\n"
          "@%p2 bra second;\n";
  for (unsigned i = 20; i < 28; ++i)
    body += "mov.b32 %r" + std::to_string(i) + ", 0f00000000;\n";
  body += "mov.b64 %rd5, sm;\n"
          "shr.u64 %rd7, %rd5, 4;\nand.b64 %rd7, %rd7, 16383;\n"
          "or.b64 %rd8, %rd7, 0x4000004000010000;\n"
          "add.s64 %rd9, %rd8, 512;\nsetp.ne.b32 %p3, 1, 0;\n"
          "wgmma.fence.sync.aligned;\n"
          "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%r20, %r21, "
          "%r22, %r23, %r24, %r25, %r26, %r27}, %rd8, %rd9, %p3, 1, 1, 0, 0;\n"
          "wgmma.commit_group.sync.aligned;\n" +
          (kWait + arrival) +
          "@%p1 bra end;\n"
          "full:\n"
          "mbarrier.try_wait.parity.shared::cta.b64 %p4, [sm+10240], 0;\n"
          "@!%p4 bra full;\nbra end;\n"
          "second:\n@%p1 bra end;\n"
          "free:\n"
          "mbarrier.try_wait.parity.shared::cta.b64 %p4, [sm+10240], 0;\n"
          "@!%p4 bra free;\n"
          "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r3+10240], 4;\n"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], "
          "%r6, [%r3+10240];\n"
          "end:\n"
          "barrier.cluster.arrive;\nbarrier.cluster.wait;";
  std::string text = replaced(kernelText(body, 0, 128, kHead), ".reqntid 128",
                              ".reqntid 128\n.explicitcluster\n"
                              ".reqnctapercluster 2, 1, 1");
  auto run = [](const std::string &kernel) -> std::string {
    for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
      KernelRun made(kernel, seed);
      if (!made.loaded)
        return made.loaded.message();
      if (moert::Status status = made.run(2, 128, 10248); !status)
        return status.message();
    }
    return "";
  };
  EXPECT_EQ(run(text), "");
  EXPECT_MESSAGE(run(replaced(text, kWait + arrival, arrival + kWait)), "race");
}

TEST(Cluster, SizesOfClusters) {
  KernelRun wide(replaced(clusterText("ret;", 0), "2, 1, 1", "16, 1, 1"));
  EXPECT_MESSAGE(wide.loaded.message(), "up to 8 CTAs");
  KernelRun flat(replaced(clusterText("ret;", 0), "2, 1, 1", "1, 2, 1"));
  EXPECT_MESSAGE(flat.loaded.message(), "one dimension");
}

} // namespace
