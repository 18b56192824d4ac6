//===- MutantsTest.cpp - tests of the mutants of a kernel -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MutateTesting.h"
#include "PtxMutate/Mutants/Edit.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using namespace moec::ptx::mutate::test;

namespace {

/// Lists mutants as "group kind: change", one per line.
std::string listOf(const std::string &body) {
  std::string text;
  for (const Mutant &mutant : listMutants(parseBody(body).kernels[0]))
    text += std::string(groupName(mutant.group)) + " " + mutant.kind + ": " +
            mutant.change + "\n";
  return text;
}

TEST(Mutants, Waits) {
  EXPECT_EQ(listOf("cp.async.wait_group 1;"),
            "strict cp.async wait: deleted\n"
            "strict cp.async wait: one group more\n");
  EXPECT_EQ(listOf("cp.async.bulk.wait_group 0;"),
            "strict bulk wait: deleted\nstrict bulk wait: one group more\n"
            "strict bulk wait: for reads alone\n");
  EXPECT_EQ(listOf("mbarrier.try_wait.parity.shared.b64 %p1, [sm], %r1;"),
            "strict mbarrier wait: deleted\n"
            "strict mbarrier wait: other parity\n"
            "index address: operand 1 +8 bytes\n"
            "index address: operand 1 -8 bytes\n");
}

TEST(Mutants, Signals) {
  std::string list =
      listOf("mbarrier.arrive.expect_tx.shared.b64 _, [sm], 512;");
  EXPECT_EQ(
      list.substr(0, list.find("index")),
      "strict arrival: deleted\nstrict expected bytes: deleted\n"
      "strict expected bytes: 16 more\nstrict expected bytes: 16 fewer\n");
  EXPECT_EQ(listOf("cp.async.commit_group;"), "strict commit: deleted\n");
}

/// Counters in global memory, by which CTAs wait for each other.
TEST(Mutants, Counters) {
  std::string list = listOf("atom.global.add.u32 %r2, [%rd0], 1;");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "strict counter arrival: deleted\n"
            "strict counter arrival: one more\n");
  list = listOf("ld.acquire.gpu.global.b32 %r2, [%rd0];");
  EXPECT_EQ(list.substr(0, list.find("sync")),
            "strict counter wait: deleted\n"
            "strict counter wait: for one arrival fewer\n");
  for (const char *other :
       {"atom.shared.add.u32 %r2, [%rd0], 1;", "ld.global.b32 %r2, [%rd0];"})
    EXPECT_EQ(listOf(other).find("counter"), std::string::npos) << other;
}

TEST(Mutants, CountersChange) {
  const RawKernel kernel = parseBody("ld.acquire.gpu.global.b32 %r2, [%rd0];\n"
                                     "setp.lt.s32 %p1, %r2, 5;")
                               .kernels[0];
  std::vector<Mutant> waits = mutantsOf(kernel, "counter wait");
  ASSERT_EQ(waits.size(), 2u);
  RawKernel deleted = kernel, fewer = kernel;
  waits[0].apply(deleted);
  ASSERT_EQ(deleted.instructions.size(), kernel.instructions.size());
  const RawInstruction &high = deleted.instructions[waits[0].index];
  EXPECT_EQ(opcodeOf(high), "mov.b32");
  EXPECT_EQ(high.operands[1].bits, uint64_t(INT32_MAX));
  waits[1].apply(fewer);
  ASSERT_EQ(fewer.instructions.size(), kernel.instructions.size() + 1);
  const RawInstruction &more = fewer.instructions[waits[1].index + 1];
  EXPECT_EQ(opcodeOf(more), "add.s32");
  EXPECT_EQ(more.operands[0].text, "%r2");
  EXPECT_EQ(more.operands[2].bits, 1u);
}

TEST(Mutants, CountersOfTwoKindsOfArrivals) {
  // One kind adds 1, the other 4096, beside which 1 makes no difference.
  std::string adds = "atom.global.add.u32 %r3, [%rd0], 1;\n"
                     "atom.global.add.u32 %r3, [%rd0], 4096;\n"
                     "ld.acquire.gpu.global.b32 %r2, [%rd0];\n";
  auto unitOf = [](const std::string &body) {
    RawKernel kernel = parseBody(body).kernels[0];
    Mutant fewer = mutantsOf(kernel, "counter wait")[1];
    fewer.apply(kernel);
    return kernel.instructions[fewer.index + 1].operands[2].bits;
  };
  EXPECT_EQ(unitOf(adds + "setp.lt.s32 %p1, %r2, %r1;"), 4096u);
  EXPECT_EQ(unitOf(adds + "and.b32 %r2, %r2, 4095;"), 1u);
}

TEST(Mutants, Clusters) {
  EXPECT_EQ(listOf("barrier.cluster.arrive;\nbarrier.cluster.wait;"),
            "strict cluster barrier: deleted\nsync cluster barrier: relaxed\n");
  EXPECT_EQ(listOf("mapa.shared::cluster.u32 %r1, %r2, 1;"),
            "strict rank in a cluster: 0\n");
  std::string list =
      listOf("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "strict arrival: deleted\nsync qualifier: release to relaxed\n"
            "sync qualifier: cluster to cta\n");
  list = listOf("mbarrier.arrive.shared::cluster.b64 _, [%r1];");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "strict arrival: deleted\nsync qualifier: release to relaxed\n");
  list = listOf("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
                "[%r1], %r2, [%r3];");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "strict asynchronous store: deleted\n");
  list = listOf("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                "bytes.multicast::cluster [%r1], [%rd0], 16, [%r2], %rs1;");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "strict multicast mask: ^ 1\nstrict multicast mask: ^ 2\n"
            "strict multicast mask: ^ 4\n");
}

TEST(Mutants, ClusterBarrierIsDeletedWithItsWait) {
  RawKernel kernel = parseBody("barrier.cluster.arrive;\nadd.s32 %r1, %r1, 1;\n"
                               "barrier.cluster.wait;")
                         .kernels[0];
  size_t count = kernel.instructions.size();
  mutantsOf(kernel, "cluster barrier")[0].apply(kernel);
  EXPECT_EQ(kernel.instructions.size(), count - 2);
  for (const RawInstruction &left : kernel.instructions)
    EXPECT_NE(left.parts.front(), "barrier");
}

TEST(Mutants, OrderAndQualifiers) {
  EXPECT_EQ(listOf("bar.sync 1, 64;"),
            "strict CTA barrier: deleted\nstrict CTA barrier: a warp fewer\n");
  EXPECT_EQ(listOf("fence.proxy.async.shared::cta;"),
            "strict proxy fence: deleted\n");
  EXPECT_EQ(listOf("fence.acq_rel.gpu;"),
            "sync fence: deleted\nsync qualifier: gpu to cta\n");
  EXPECT_EQ(
      listOf("bar.warp.sync -1;"),
      "sync warp barrier: deleted\nindex lane mask: without the last lane\n");
  std::string list = listOf("st.release.gpu.global.b32 [%rd0], %r1;");
  EXPECT_EQ(list.substr(0, list.find("index")),
            "sync qualifier: release to relaxed\nsync qualifier: gpu to cta\n");
}

TEST(Mutants, IndicesAndMasks) {
  EXPECT_EQ(listOf("ld.shared.v2.b32 {%r1, %r2}, [%rd1+8];"),
            "index address: operand 1 +4 bytes\n"
            "index address: operand 1 -4 bytes\n");
  EXPECT_EQ(listOf("setp.lt.s32 %p1, %r1, 8;"), "index bound: lt to le\n");
  EXPECT_EQ(listOf("@%p1 bra l;\nl:"), "index branch: negated\n"
                                       "index branch: always\n"
                                       "index branch: never\n");
  EXPECT_EQ(listOf("@!%p1 mov.b32 %r1, 0;"),
            "index predicate: negated\nindex predicate: dropped\n");
  // A reduction over lane distances 17, 8, 4, 2, 1 equals that over 16 and so
  // on.
  EXPECT_EQ(listOf("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;"),
            "index lane mask: without the last lane\n"
            "index lane: source lane -1\n");
  EXPECT_EQ(listOf("cp.async.cg.shared.global [%rd1], [%rd2], 16, %r1;"),
            "index address: operand 0 +16 bytes\n"
            "index address: operand 0 -16 bytes\n"
            "index address: operand 1 +16 bytes\n"
            "index address: operand 1 -16 bytes\n"
            "index copy size: all bytes\n");
}

TEST(Mutants, PhaseToggle) {
  RawKernel kernel =
      parseBody("xor.b32 %r2, %r1, 1;\nxor.b32 %r3, %r3, 1;\n"
                "mbarrier.try_wait.parity.shared.b64 %p1, [sm], %r2;")
          .kernels[0];
  std::vector<Mutant> toggles = mutantsOf(kernel, "phase");
  ASSERT_EQ(toggles.size(), 1u);
  toggles[0].apply(kernel);
  EXPECT_EQ(opcodeOf(kernel.instructions[toggles[0].index]), "mov.b32");
}

/// Two products of a sum change places; the first two of a sum from 0 have the
/// same sum in any order.
TEST(Mutants, SumOrder) {
  RawKernel kernel = parseBody("fma.rn.f32 %r1, %r10, %r11, 0f00000000;\n"
                               "fma.rn.f32 %r2, %r12, %r13, %r1;\n"
                               "mul.f32 %r16, %r17, %r18;\n"
                               "fma.rn.f32 %r3, %r14, %r16, %r2;")
                         .kernels[0];
  std::vector<Mutant> found = listSumOrderMutants(kernel);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].change, "added ahead of the product before");
  size_t last = found[0].index, size = kernel.instructions.size();
  found[0].apply(kernel);
  ASSERT_EQ(kernel.instructions.size(), size);
  auto getOperands = [&](size_t index) {
    std::string text;
    for (const RawOperand &operand : kernel.instructions[index].operands)
      text += operand.text + " ";
    return text;
  };
  EXPECT_EQ(getOperands(last - 1), "%r2 %r14 %r16 %r1 ");
  EXPECT_EQ(getOperands(last), "%r3 %r12 %r13 %r2 ");
}

TEST(Mutants, SumOrderOfMatrices) {
  auto count = [](const std::string &between, const std::string &second) {
    const char *first = "setp.ne.b32 %p1, %r9, 0;\n"
                        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                        "{%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, 1, 1, 0, 0;\n";
    return listSumOrderMutants(parseBody(first + between + second).kernels[0])
        .size();
  };
  std::string second = "setp.ne.b32 %p2, %r9, 0;\n"
                       "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                       "{%r1, %r2, %r3, %r4}, %rd3, %rd4, %p2, 1, 1, 0, 0;";
  EXPECT_EQ(count("or.b64 %rd3, %rd5, 2;\n", second), 1u);
  // Another instruction reads or writes the sum, or changes a factor.
  EXPECT_EQ(count("add.f32 %r10, %r1, %r2;\n", second), 0u);
  EXPECT_EQ(count("mov.b32 %r1, 0;\n", second), 0u);
  EXPECT_EQ(count("or.b64 %rd1, %rd5, 2;\n", second), 0u);
  // Nothing moves over a commit, a barrier, a label or another predicate.
  EXPECT_EQ(count("wgmma.commit_group.sync.aligned;\n", second), 0u);
  EXPECT_EQ(count("bar.sync 0;\n", second), 0u);
  EXPECT_EQ(count("l:\n", second), 0u);
  EXPECT_EQ(count("", "setp.ne.b32 %p2, %r8, 0;\n" + second.substr(25)), 0u);
}

TEST(Mutants, OneInstructionChanges) {
  RawKernel kernel =
      parseBody("mbarrier.arrive.expect_tx.shared.b64 _, [sm], %r1;")
          .kernels[0];
  for (const Mutant &mutant : listMutants(kernel)) {
    RawKernel mutated = kernel;
    mutant.apply(mutated);
    EXPECT_LE(mutated.instructions.size(), kernel.instructions.size() + 1);
    EXPECT_EQ(opcodeOf(mutated.instructions.back()), "ret");
  }
}

} // namespace
