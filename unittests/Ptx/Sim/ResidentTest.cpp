//===- ResidentTest.cpp - CTAs that wait for each other ---------*- C++ -*-===//
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

constexpr uint32_t kCtas = 12;

/// Each CTA writes a row of p0, a word per lane, and one lane adds 1 to the
/// counter p1. A lane of each CTA waits until all CTAs have done so; then the
/// CTA copies the next CTA's row to its own row of p2, by `copy`: from %rd6 to
/// %r6.
std::string handOver(const std::string &copy) {
  return kernelText(
      "mov.u32 %r1, %ctaid.x;\nmad.lo.s32 %r2, %r1, 32, %r0;\n"
      "mul.wide.u32 %rd3, %r2, 4;\nadd.s64 %rd4, %rd0, %rd3;\n"
      "st.global.b32 [%rd4], %r2;\n"
      "bar.warp.sync -1;\n"
      "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra join;\n"
      "red.release.gpu.global.add.u32 [%rd1], 1;\n"
      "again:\nld.acquire.gpu.global.b32 %r3, [%rd1];\n"
      "setp.ne.b32 %p2, %r3, " +
          std::to_string(kCtas) +
          ";\n@%p2 bra again;\n"
          "join:\nbar.warp.sync 0xffffffff;\n"
          "add.s32 %r4, %r1, 1;\nrem.u32 %r4, %r4, " +
          std::to_string(kCtas) +
          ";\n"
          "mad.lo.s32 %r5, %r4, 32, %r0;\nmul.wide.u32 %rd5, %r5, 4;\n"
          "add.s64 %rd6, %rd0, %rd5;\n" +
          copy +
          "add.s64 %rd7, %rd2, %rd3;\n"
          "st.global.b32 [%rd7], %r6;",
      3, 32, ".shared .align 4 .b8 row[128];\n");
}

const char *const kPlain = "ld.global.b32 %r6, [%rd6];\n";
const char *const kAsync = "mov.u32 %r7, row;\nmad.lo.s32 %r7, %r0, 4, %r7;\n"
                           "cp.async.ca.shared.global [%r7], [%rd6], 4;\n"
                           "cp.async.wait_all;\nld.shared.b32 %r6, [%r7];\n";

/// The first error of some seeds.
std::string errorOf(const std::string &text, bool isResident = true,
                    uint64_t seeds = kSeeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(std::vector<uint32_t>(kCtas * 32));
    kernel.input(std::vector<uint32_t>{0});
    uint64_t copy = kernel.output(kCtas * 128);
    if (moert::Status status = kernel.run(kCtas, 32, 0, isResident); !status)
      return status.message();
    std::vector<uint32_t> values = kernel.read<uint32_t>(copy, kCtas * 32);
    for (uint32_t i = 0; i < values.size(); ++i)
      if (values[i] != (i + 32) % values.size())
        return "word " + std::to_string(i) + " is " + std::to_string(values[i]);
  }
  return "";
}

TEST(Resident, CountersHandRowsOver) {
  for (const char *copy : {kPlain, kAsync}) {
    EXPECT_EQ(errorOf(handOver(copy), true, 32), "");
    // Equally correct: atom instead of red, and fences around relaxed atomics.
    EXPECT_EQ(errorOf(replaced(handOver(copy), "red.release.gpu.global.add.u32",
                               "atom.release.gpu.global.add.u32 %r8,")),
              "");
    EXPECT_EQ(errorOf(replaced(replaced(handOver(copy), "red.release.gpu",
                                        "fence.acq_rel.gpu;\nred.relaxed.gpu"),
                               "join:\n", "@!%p1 fence.acq_rel.gpu;\njoin:\n")),
              "");
  }
}

TEST(Resident, MutantsOfTheHandOverDie) {
  for (const char *copy : {kPlain, kAsync}) {
    std::string text = handOver(copy);
    for (auto [what, with] : {std::pair("red.release.gpu", "red.relaxed.gpu"),
                              {"red.release.gpu", "red"},
                              {"red.release.gpu", "red.release.cta"},
                              {"ld.acquire.gpu", "ld.relaxed.gpu"},
                              {"ld.acquire.gpu", "ld.acquire.cta"},
                              {"ld.acquire.gpu.global", "ld.volatile.global"},
                              {"bar.warp.sync -1;", ""},
                              {"bar.warp.sync 0xffffffff;", ""}})
      EXPECT_MESSAGE(errorOf(replaced(text, what, with)), "race");
  }
}

TEST(Resident, AllCtasOfAMarkedKernelBegin) {
  // More CTAs than may be resident of other kernels, and as many as possible.
  std::string text =
      kernelText("mov.u32 %r1, %ctaid.x;\nmov.u32 %r3, %nctaid.x;\n"
                 "add.s32 %r1, %r1, 1;\nsetp.eq.b32 %p1, %r1, %r3;\n"
                 "@%p1 st.release.gpu.global.b32 [%rd0], 1;\n"
                 "again:\nld.acquire.gpu.global.b32 %r2, [%rd0];\n"
                 "setp.eq.b32 %p2, %r2, 0;\n@%p2 bra again;",
                 1, 1);
  auto run = [&](int64_t grid, bool isResident, uint64_t seed) {
    KernelRun kernel(text, seed);
    kernel.input(std::vector<uint32_t>{0});
    return kernel.run(grid, 1, 0, isResident).message();
  };
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    for (int64_t grid : {40, 132})
      EXPECT_EQ(run(grid, true, seed), "") << seed;
  std::string error = run(40, false, 0);
  EXPECT_MESSAGE(error, "deadlock");
  EXPECT_MESSAGE(error, "  36 of 40 CTAs of 'k' have yet to begin; if others "
                        "wait for them, mark the kernel resident");
  EXPECT_EQ(
      run(133, true, 0),
      "kernel 'k' needs 133 CTAs at once, but the simulated GPU runs at most "
      "132; compile the layer by moe-compile with "
      "--disable=join-products,quantize-inputs");
}

TEST(Resident, WhoPollsLetsOthersRun) {
  // CTA 0 runs long before it raises the flag that the others poll.
  std::string text = kernelText(
      "mov.u32 %r1, %ctaid.x;\nsetp.ne.b32 %p1, %r1, 0;\n@%p1 bra again;\n"
      "mov.u32 %r3, 20000;\n"
      "work:\nsub.s32 %r3, %r3, 1;\nsetp.ne.b32 %p2, %r3, 0;\n@%p2 bra work;\n"
      "st.release.gpu.global.b32 [%rd0], 1;\n"
      "again:\nld.acquire.gpu.global.b32 %r2, [%rd0];\n"
      "setp.eq.b32 %p3, %r2, 0;\n@%p3 bra again;",
      1, 1);
  KernelRun kernel(text, 0);
  kernel.input(std::vector<uint32_t>{0});
  ASSERT_EQ(kernel.run(132, 1, 0, true).message(), "");
  // If 131 CTAs used their whole time slice for polling, this would be ten
  // times as much.
  EXPECT_LT(kernel.simulator.statistics().threadInstructions, 600000u);
}

} // namespace
