//===- TensorTest.cpp - tests of tcgen05 ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

#include <cmath>

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr unsigned kRows = 128, kColumns = 16, kDepth = 64;
// Shared memory offsets: A, B, the scales of both, and the kernel's own data.
constexpr unsigned kB = 16384, kScaleA = 18432, kScaleB = 18944, kBytes = 20480;

/// Descriptors without the address, after the PTX ISA: stride of 8 rows in
/// units of 16 bytes at bit 32, 1 at bit 46, swizzle at bit 61: 2 (128 bytes)
/// or 0 (none).
constexpr uint64_t kMatrix =
    uint64_t(64) << 32 | uint64_t(1) << 46 | uint64_t(2) << 61;
constexpr uint64_t kScales = uint64_t(8) << 32 | uint64_t(1) << 46;
/// Instruction descriptor: 16 rows of B, ue8m0, 128 rows of A.
constexpr uint32_t kInstruction = 2u << 17 | 1u << 23 | 8u << 24;

uint8_t e4m3(int value) {
  const uint8_t values[] = {0xC0, 0xB8, 0x00, 0x38, 0x40};
  return values[value + 2];
}
int valueOf(unsigned row, unsigned k) { return int((row * 7 + k * 3) % 5) - 2; }
/// Exponent of the scale of a row, for 32 elements of K.
int exponentOf(unsigned row, unsigned block) {
  return int((row * 5 + block * 3) % 7) - 3;
}

/// 128 threads copy their part, thread 0 issues two MMAs with K = 32, and
/// all threads store the accumulators of their lane.
std::string tensorKernel() {
  auto number = [](uint64_t value) { return std::to_string(value); };
  std::string body = "mul.wide.u32 %rd3, %r0, 160;\nadd.s64 %rd4, %rd0, %rd3;\n"
                     "mov.b64 %rd5, sm;\nadd.s64 %rd6, %rd5, %rd3;\n";
  for (unsigned i = 0; i < 160; i += 16)
    body += "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd4+" + number(i) +
            "];\nst.shared.v4.b32 [%rd6+" + number(i) +
            "], {%r1, %r2, %r3, %r4};\n";
  body += "setp.ne.u32 %p1, %r0, 0;\nsetp.ge.u32 %p2, %r0, 32;\n"
          "@%p1 bra made;\nmbarrier.init.shared.b64 [sm+20480], 1;\n"
          "fence.mbarrier_init.release.cluster;\nmade:\n"
          "fence.proxy.async.shared::cta;\n@%p2 bra taken;\n"
          "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 "
          "[sm+20488], 32;\n"
          "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
          "taken:\nbar.sync 0;\n"
          "tcgen05.fence::after_thread_sync;\nld.shared.b32 %r5, [sm+20488];\n"
          "add.u32 %r6, %r5, 16;\nadd.u32 %r7, %r5, 20;\n@%p1 bra started;\n"
          "shr.u64 %rd7, %rd5, 4;\n";
  auto describe = [&](const char *to, unsigned offset, uint64_t kind) {
    body += std::string("add.s64 ") + to + ", %rd7, " + number(offset / 16) +
            ";\nor.b64 " + to + ", " + to + ", " + number(kind) + ";\n";
  };
  for (auto [to, offset] : {std::pair("%r6", kScaleA), {"%r7", kScaleB}}) {
    describe("%rd8", offset, kScales);
    body += std::string("tcgen05.cp.cta_group::1.32x128b.warpx4 [") + to +
            "], %rd8;\n";
  }
  for (unsigned i = 0; i < 2; ++i) {
    describe("%rd9", 32 * i, kMatrix);
    describe("%rd10", kB + 32 * i, kMatrix);
    body += "setp.ne.u32 %p3, " + number(i) +
            ", 0;\ntcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale."
            "scale_vec::1X [%r5], %rd9, %rd10, " +
            number(kInstruction | i << 4 | i << 29) + ", [%r6], [%r7], %p3;\n";
  }
  body += "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster."
          "b64 [sm+20480];\nstarted:\n"
          "mbarrier.try_wait.parity.shared.b64 %p4, [sm+20480], 0;\n"
          "@!%p4 bra started;\n"
          "tcgen05.fence::after_thread_sync;\nand.b32 %r8, %r0, 96;\nshl.b32 "
          "%r8, %r8, 16;\n"
          "add.u32 %r8, %r5, %r8;\n"
          "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%r20";
  for (unsigned i = 1; i < kColumns; ++i)
    body += ", %r" + number(20 + i);
  body += "}, [%r8];\ntcgen05.wait::ld.sync.aligned;\n"
          "mul.wide.u32 %rd11, %r0, 64;\nadd.s64 %rd11, %rd1, %rd11;\n";
  for (unsigned i = 0; i < kColumns; ++i)
    body += "st.global.b32 [%rd11+" + number(4 * i) + "], %r" + number(20 + i) +
            ";\n";
  return kernelText(
      body + "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
             "@%p2 bra given;\n"
             "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;\ngiven:",
      2, 128, ".extern .shared .align 1024 .b8 sm[];");
}

/// The error message, or empty.
std::string runTensor(const std::string &text, uint64_t seeds = kSeeds) {
  std::vector<uint8_t> memory(kBytes);
  auto fill = [&](unsigned base, unsigned scales, unsigned rows,
                  unsigned first) {
    for (unsigned row = 0; row < rows; ++row) {
      for (unsigned k = 0; k < kDepth; ++k) {
        unsigned at = row / 8 * 1024 + row % 8 * 128 + k;
        memory[base + (at ^ (at >> 7 & 7) << 4)] =
            e4m3(valueOf(row + first, k));
      }
      // The word of row r is in lane r % 32, column r / 32.
      for (unsigned block = 0; block < 4; ++block)
        memory[scales + row % 32 * 16 + row / 32 * 4 + block] =
            uint8_t(127 + exponentOf(row + first, block));
    }
  };
  fill(0, kScaleA, kRows, 0);
  fill(kB, kScaleB, kColumns, 11);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    if (!kernel.loaded)
      return kernel.loaded.message();
    kernel.input(memory);
    uint64_t result = kernel.output(kRows * kColumns * 4);
    if (moert::Status status = kernel.run(1, 128, kBytes + 16); !status)
      return status.message();
    std::vector<float> sums = kernel.read<float>(result, kRows * kColumns);
    for (unsigned row = 0; row < kRows; ++row)
      for (unsigned column = 0; column < kColumns; ++column) {
        double expected = 0;
        for (unsigned k = 0; k < kDepth; ++k)
          expected += valueOf(row, k) * valueOf(column + 11, k) *
                      std::ldexp(1.0, exponentOf(row, k / 32) +
                                          exponentOf(column + 11, k / 32));
        if (sums[row * kColumns + column] != float(expected))
          return "wrong sum";
      }
  }
  return "";
}

TEST(Tensor, ScalesBlocks) { EXPECT_EQ(runTensor(tensorKernel()), ""); }

TEST(Tensor, OtherBitsGiveOtherSums) {
  std::string text = tensorKernel();
  auto run = [&](uint32_t bits) {
    std::string second = std::to_string(kInstruction | 1u << 4 | 1u << 29);
    return runTensor(
        replaced(text, second, std::to_string(kInstruction ^ bits)));
  };
  EXPECT_EQ(run(1u << 4 | 1u << 29), "");
  EXPECT_EQ(run(1u << 4), "wrong sum");
  EXPECT_EQ(run(1u << 29), "wrong sum");
  EXPECT_EQ(run(2u << 4 | 1u << 29), "wrong sum");
  EXPECT_MESSAGE(run(1u << 23), "ue8m0");
  EXPECT_MESSAGE(run(1u << 27), "128 rows");
  EXPECT_MESSAGE(run(1u << 13), "negated");
  EXPECT_MESSAGE(run(1u << 7), "e4m3 and e2m1");
  EXPECT_MESSAGE(run(1u << 2), "bits 0 to 3");
  // Wrong descriptors: without bit 46, and with wgmma's swizzle encoding.
  EXPECT_MESSAGE(runTensor(replaced(
                     text, std::to_string(kMatrix),
                     std::to_string(uint64_t(64) << 32 | uint64_t(2) << 61))),
                 "bits 46 to 48");
  EXPECT_MESSAGE(
      runTensor(replaced(text, std::to_string(kMatrix),
                         std::to_string(uint64_t(64) << 32 | uint64_t(1) << 46 |
                                        uint64_t(1) << 62 >> 1))),
      "128-byte swizzle");
}

TEST(Tensor, MutantsDie) {
  std::string text = tensorKernel();
  auto drop = [&](const std::string &what) {
    return runTensor(without(text, what));
  };
  EXPECT_MESSAGE(drop("fence.proxy.async.shared::cta;"),
                 "unfenced generic write");
  EXPECT_EQ(drop("tcgen05.wait::ld.sync.aligned;"), "wrong sum");
  EXPECT_MESSAGE(drop("@!%p4 bra started;"), "never written");
  EXPECT_MESSAGE(drop("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;"),
                 "not deallocated");
  EXPECT_MESSAGE(drop("tcgen05.cp.cta_group::1.32x128b.warpx4 [%r6], %rd8;"),
                 "wrong sum");
  EXPECT_MESSAGE(drop("tcgen05.fence::before_thread_sync;"),
                 "fence::before_thread_sync");
  for (std::string behind : {"bar.sync 0;\n", "@!%p4 bra started;\n"})
    EXPECT_MESSAGE(
        runTensor(replaced(text, behind + "tcgen05.fence::after_thread_sync;",
                           behind)),
        "fence::after_thread_sync");
  EXPECT_MESSAGE(runTensor(replaced(text, "%r8, 16;", "%r8, 15;")),
                 "own quarter");
  EXPECT_MESSAGE(
      runTensor(replaced(text, "add.u32 %r7, %r5, 20", "add.u32 %r7, %r5, 32")),
      "not allocated by the CTA");
  EXPECT_MESSAGE(runTensor(replaced(text, "bar.sync 0;\n@%p2 bra given;",
                                    "@%p2 bra given;")),
                 "race");
  EXPECT_MESSAGE(runTensor(replaced(text, "20488], 32", "20488], 48")),
                 "power of two");
}

/// MMAs may read the scales that a later copy writes: only the end of the
/// MMAs orders the two.
TEST(Tensor, CopiesPassProducts) {
  std::string copy = "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r7], %rd8;\n";
  EXPECT_MESSAGE(runTensor(replaced(tensorKernel(), "tcgen05.commit",
                                    copy + "tcgen05."
                                           "commit")),
                 "race");
}

} // namespace
