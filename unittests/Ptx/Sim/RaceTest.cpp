//===- RaceTest.cpp - tests of order between CTAs ---------------*- C++ -*-===//
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

/// CTA 0 writes a word and raises a flag; CTA 1 waits for it and reads.
std::string flagKernel() {
  return kernelText("mov.u32 %r1, %ctaid.x;\nsetp.ne.b32 %p1, %r1, 0;\n"
                    "@%p1 bra reader;\n"
                    "st.global.b32 [%rd0], 5;\n"
                    "st.release.gpu.global.b32 [%rd1], 1;\nret;\n"
                    "reader:\n"
                    "ld.acquire.gpu.global.b32 %r2, [%rd1];\n"
                    "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra reader;\n"
                    "ld.global.b32 %r3, [%rd0];\n"
                    "setp.ne.b32 %p3, %r3, 5;\n@%p3 trap;",
                    2, 1);
}

std::string runFlag(const std::string &text, uint64_t seeds = kSeeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(std::vector<uint32_t>{0});
    kernel.input(std::vector<uint32_t>{0});
    if (moert::Status status = kernel.run(2, 1); !status)
      return status.message();
  }
  return "";
}

TEST(Race, ReleaseAndAcquireOrder) { EXPECT_EQ(runFlag(flagKernel(), 32), ""); }

TEST(Race, WeakerFlagsDoNot) {
  std::string text = flagKernel();
  EXPECT_MESSAGE(runFlag(replaced(text, "st.release.gpu", "st.relaxed.gpu")),
                 "race");
  EXPECT_MESSAGE(runFlag(replaced(text, "ld.acquire.gpu", "ld.relaxed.gpu")),
                 "race");
  EXPECT_MESSAGE(runFlag(replaced(text, "ld.acquire.gpu", "ld.volatile")),
                 "race");
  EXPECT_MESSAGE(runFlag(replaced(text, "st.release.gpu", "st.release.cta")),
                 "race");
  EXPECT_MESSAGE(runFlag(replaced(text, "st.release.gpu.global", "st.global")),
                 "race");
}

TEST(Race, FencesMakeRelaxedFlagsGood) {
  std::string text = replaced(replaced(flagKernel(), "st.release.gpu",
                                       "fence.acq_rel.gpu;\nst.relaxed.gpu"),
                              "ld.acquire.gpu", "ld.relaxed.gpu");
  text = replaced(text, "ld.global.b32 %r3", "membar.gl;\nld.global.b32 %r3");
  EXPECT_EQ(runFlag(text), "");
  EXPECT_MESSAGE(runFlag(without(text, "fence.acq_rel.gpu;")), "race");
  EXPECT_MESSAGE(runFlag(without(text, "membar.gl;")), "race");
  EXPECT_MESSAGE(runFlag(replaced(text, "membar.gl;", "membar.cta;")), "race");
}

TEST(Race, RelaxedReadsMayBeOld) {
  // The second word is written first, and may become visible last.
  std::string text = kernelText(
      "mov.u32 %r1, %ctaid.x;\nsetp.ne.b32 %p1, %r1, 0;\n@%p1 bra reader;\n"
      "st.relaxed.gpu.global.b32 [%rd1], 1;\n"
      "st.relaxed.gpu.global.b32 [%rd0], 1;\nret;\n"
      "reader:\nld.relaxed.gpu.global.b32 %r2, [%rd0];\n"
      "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra reader;\n"
      "ld.relaxed.gpu.global.b32 %r3, [%rd1];\n"
      "setp.eq.b32 %p3, %r3, 0;\n@%p3 trap;",
      2, 1);
  EXPECT_MESSAGE(runFlag(text, 32), "trapped");
  text = replaced(replaced(text, "st.relaxed.gpu.global.b32 [%rd0]",
                           "st.release.gpu.global.b32 [%rd0]"),
                  "ld.relaxed", "ld.acquire");
  EXPECT_EQ(runFlag(text, 32), "");
}

TEST(Race, AtomicsCarryWhatOthersReleased) {
  // The last of three CTAs reads what all have written.
  std::string text = kernelText(
      "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd2, %r1, 4;\n"
      "add.s64 %rd3, %rd0, %rd2;\nst.global.b32 [%rd3], 7;\n"
      "atom.acq_rel.gpu.global.add.u32 %r2, [%rd1], 1;\n"
      "setp.ne.b32 %p1, %r2, 2;\n@%p1 bra end;\n"
      "ld.global.b32 %r3, [%rd0];\nld.global.b32 %r4, [%rd0+4];\n"
      "ld.global.b32 %r5, [%rd0+8];\nadd.s32 %r3, %r3, %r4;\n"
      "add.s32 %r3, %r3, %r5;\nsetp.ne.b32 %p2, %r3, 21;\n@%p2 trap;\n"
      "end:\n",
      2, 1);
  auto run = [](const std::string &mutant) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      KernelRun kernel(mutant, seed);
      kernel.input(std::vector<uint32_t>{0, 0, 0});
      kernel.input(std::vector<uint32_t>{0});
      if (moert::Status status = kernel.run(3, 1); !status)
        return status.message();
    }
    return std::string();
  };
  EXPECT_EQ(run(text), "");
  EXPECT_MESSAGE(run(replaced(text, "atom.acq_rel.gpu", "atom.relaxed.gpu")),
                 "race");
  EXPECT_MESSAGE(run(replaced(text, "atom.acq_rel.gpu", "atom.acquire.gpu")),
                 "race");
}

TEST(Race, CtasThatWriteTheSame) {
  KernelRun kernel(kernelText("st.global.b32 [%rd0], 1;", 1, 1));
  kernel.output(4);
  std::string error = kernel.run(2, 1).message();
  EXPECT_MESSAGE(error, "race");
  EXPECT_MESSAGE(error, "of cta");
  EXPECT_MESSAGE(error, "test.ptx:16");
}

TEST(Race, LanesThatWriteTheSame) {
  KernelRun kernel(kernelText("st.global.b32 [%rd0], %r0;", 1));
  kernel.output(4);
  EXPECT_MESSAGE(kernel.run().message(), "race");
}

TEST(Race, NeighbouringBytesDoNotRace) {
  KernelRun kernel(kernelText("cvt.u64.u32 %rd2, %r0;\n"
                              "add.s64 %rd3, %rd0, %rd2;\n"
                              "st.global.b8 [%rd3], %r0;",
                              1));
  kernel.output(32);
  moert::Status status = kernel.run();
  EXPECT_TRUE(status) << status.message();
}

TEST(Race, KernelsFollowEachOther) {
  std::string text = kernelText("ld.global.b32 %r1, [%rd0];\n"
                                "add.s32 %r1, %r1, 1;\n"
                                "st.global.b32 [%rd0], %r1;",
                                1, 1);
  for (bool areOrdered : {true, false}) {
    std::string error;
    for (uint64_t seed = 0; seed < kSeeds && error.empty(); ++seed) {
      KernelRun kernel(text, seed);
      uint64_t buffer = kernel.input(std::vector<uint32_t>{0});
      moert::Result<std::vector<uint8_t>> params =
          packParams(kernel.module->kernels()[0], {buffer});
      moert::LaunchDims dims;
      dims.grid = dims.block = 1;
      std::vector<WorkId> after;
      for (int i = 0; i < 3; ++i) {
        moert::Result<WorkId> work =
            kernel.simulator.submit(*kernel.module, "k", dims, *params,
                                    areOrdered ? after : std::vector<WorkId>());
        ASSERT_TRUE(work);
        after = {*work};
      }
      error = kernel.simulator.run().message();
      if (error.empty())
        EXPECT_EQ(kernel.read<uint32_t>(buffer, 1)[0], 3u);
    }
    if (areOrdered)
      EXPECT_EQ(error, "");
    else
      EXPECT_MESSAGE(error, "race");
  }
}

/// Role 0 writes a word, raises a flag and runs until role 2 has read; role 1
/// waits for the flag and ends; role 2 is a launch after role 1.
std::string toldKernel() {
  return kernelText("ld.global.b32 %r1, [%rd2];\n"
                    "setp.eq.b32 %p1, %r1, 1;\n@%p1 bra wait;\n"
                    "setp.eq.b32 %p1, %r1, 2;\n@%p1 bra reader;\n"
                    "st.global.b32 [%rd0], 5;\n"
                    "st.release.gpu.global.b32 [%rd1], 1;\n"
                    "again:\nld.acquire.gpu.global.b32 %r2, [%rd1+4];\n"
                    "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra again;\n"
                    "st.global.b32 [%rd0], 6;\nret;\n"
                    "wait:\nld.acquire.gpu.global.b32 %r2, [%rd1];\n"
                    "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra wait;\nret;\n"
                    "reader:\nld.global.b32 %r3, [%rd0];\n"
                    "setp.ne.b32 %p3, %r3, 5;\n@%p3 trap;\n"
                    "st.release.gpu.global.b32 [%rd1+4], 1;",
                    3, 1);
}

std::string runTold(const std::string &text, bool isBehind = true) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(text, seed);
    uint64_t word = kernel.input(std::vector<uint32_t>{0});
    uint64_t flags = kernel.input(std::vector<uint32_t>{0, 0});
    moert::LaunchDims dims;
    dims.grid = dims.block = 1;
    std::vector<WorkId> after;
    for (uint32_t role = 0; role < 3; ++role) {
      uint64_t own = kernel.input(std::vector<uint32_t>{role});
      auto params = packParams(kernel.module->kernels()[0], {word, flags, own});
      auto work = kernel.simulator.submit(
          *kernel.module, "k", dims, *params,
          role == 2 && isBehind ? after : std::vector<WorkId>());
      EXPECT_TRUE(work);
      after = {*work};
    }
    if (moert::Status status = kernel.simulator.run(); !status)
      return status.message();
  }
  return "";
}

TEST(Race, KernelsHandOnWhatTheyWereTold) {
  EXPECT_EQ(runTold(toldKernel()), "");
  EXPECT_MESSAGE(runTold(toldKernel(), /*isBehind=*/false), "race");
  EXPECT_MESSAGE(
      runTold(replaced(toldKernel(), "st.release.gpu", "st.relaxed.gpu")),
      "race");
  EXPECT_MESSAGE(
      runTold(replaced(toldKernel(), "wait:\nld.acquire", "wait:\nld.relaxed")),
      "race");
  // Role 0's accesses after its flag are not acquired: a race, or the word
  // arrives too late.
  EXPECT_NE(runTold(without(toldKernel(),
                            "again:\nld.acquire.gpu.global.b32 %r2, [%rd1+4];\n"
                            "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra again;\n")),
            "");
}

std::string runCopy(bool writes, bool copiesHere, bool isBehind,
                    uint64_t seed) {
  KernelRun kernel(kernelText(writes ? "st.global.b32 [%rd0], 5;"
                                     : "ld.global.b32 %r1, [%rd0];",
                              1, 1),
                   seed);
  uint64_t word = kernel.input(std::vector<uint32_t>{1});
  auto params = packParams(kernel.module->kernels()[0], {word});
  uint64_t other = kernel.input(std::vector<uint32_t>{2});
  moert::LaunchDims dims;
  dims.grid = dims.block = 1;
  auto work = kernel.simulator.submit(*kernel.module, "k", dims, *params,
                                      std::vector<WorkId>());
  EXPECT_TRUE(work);
  EXPECT_TRUE(kernel.simulator.submitCopy(
      copiesHere ? word : other, copiesHere ? other : word, 4,
      isBehind ? std::vector<WorkId>{*work} : std::vector<WorkId>()));
  return kernel.simulator.run().message();
}

TEST(Race, CopiesAreBehindWhatTheyWaitFor) {
  for (bool writes : {false, true})
    for (bool copiesHere : {false, true}) {
      int numRaces = 0;
      for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        EXPECT_EQ(runCopy(writes, copiesHere, /*isBehind=*/true, seed), "");
        std::string error =
            runCopy(writes, copiesHere, /*isBehind=*/false, seed);
        numRaces += error.find("a copy between kernels") != std::string::npos;
      }
      // Two reads do not race; a copy with nothing beside it is ordered.
      EXPECT_EQ(numRaces > 0, writes || copiesHere);
    }
}

/// Six CTAs of role 0 read a word, raise a flag each, and run until the word
/// has been written. Role 1 waits for their flags and ends. Role 2 follows it
/// and writes, once a relaxed counter shows that all have come to `late`.
std::string manyTellersKernel(const std::string &late = "") {
  return kernelText("mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd3, %r1, 4;\n"
                    "add.s64 %rd4, %rd1, %rd3;\n"
                    "ld.global.b32 %r1, [%rd2];\n"
                    "setp.eq.b32 %p1, %r1, 1;\n@%p1 bra wait;\n"
                    "setp.eq.b32 %p1, %r1, 2;\n@%p1 bra writer;\n"
                    "ld.global.b32 %r2, [%rd0];\n"
                    "st.release.gpu.global.b32 [%rd4], 1;\n" +
                        late +
                        "atom.relaxed.gpu.global.add.u32 %r2, [%rd1+28], 1;\n"
                        "again:\nld.acquire.gpu.global.b32 %r2, [%rd1+24];\n"
                        "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra again;\nret;\n"
                        "wait:\nmov.u32 %r3, 0;\nnext:\n"
                        "ld.acquire.gpu.global.b32 %r2, [%rd4];\n"
                        "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra next;\n"
                        "add.s64 %rd4, %rd4, 4;\nadd.u32 %r3, %r3, 1;\n"
                        "setp.ne.b32 %p2, %r3, 6;\n@%p2 bra next;\nret;\n"
                        "writer:\nld.relaxed.gpu.global.b32 %r2, [%rd1+28];\n"
                        "setp.ne.b32 %p2, %r2, 6;\n@%p2 bra writer;\n"
                        "st.global.b32 [%rd0], 1;\n"
                        "st.release.gpu.global.b32 [%rd1+24], 1;",
                    3, 1);
}

/// With so many readers only the last one is recorded, with the time of its
/// read.
TEST(Race, ManyReadersAreBehindWhatTheyHaveTold) {
  auto run = [](const std::string &text) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      KernelRun kernel(text, seed);
      uint64_t word = kernel.input(std::vector<uint32_t>{0});
      uint64_t flags = kernel.input(std::vector<uint32_t>(8, 0));
      std::vector<WorkId> after;
      for (uint32_t role = 0; role < 3; ++role) {
        uint64_t own = kernel.input(std::vector<uint32_t>{role});
        auto params =
            packParams(kernel.module->kernels()[0], {word, flags, own});
        moert::LaunchDims dims;
        dims.grid = role == 0 ? 6 : 1;
        dims.resident = true;
        dims.block = 1;
        auto work =
            kernel.simulator.submit(*kernel.module, "k", dims, *params,
                                    role == 2 ? after : std::vector<WorkId>());
        EXPECT_TRUE(work);
        after = {*work};
      }
      if (moert::Status status = kernel.simulator.run(); !status)
        return status.message();
    }
    return std::string();
  };
  EXPECT_EQ(run(manyTellersKernel()), "");
  EXPECT_MESSAGE(run(manyTellersKernel("ld.global.b32 %r2, [%rd0];\n")),
                 "race: a write");
}

/// All reads of a CTA's warps are recorded, also in global memory.
TEST(Race, ManyWarpsReadBehindABarrier) {
  std::string text = kernelText("ld.global.b32 %r1, [%rd0];\nbar.sync 0;\n"
                                "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra end;\n"
                                "st.global.b32 [%rd0], 1;\nend:\n",
                                1, 512);
  auto run = [](const std::string &mutant) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      KernelRun kernel(mutant, seed);
      kernel.input(std::vector<uint32_t>{0});
      if (moert::Status status = kernel.run(1, 512); !status)
        return status.message();
    }
    return std::string();
  };
  EXPECT_EQ(run(text), "");
  EXPECT_MESSAGE(run(without(text, "bar.sync 0;\n")), "race");
}

TEST(Race, SpinningForeverIsADeadlock) {
  std::string text =
      without(flagKernel(), "st.release.gpu.global.b32 [%rd1], 1;");
  EXPECT_MESSAGE(runFlag(text, 1), "deadlock");
}

} // namespace
