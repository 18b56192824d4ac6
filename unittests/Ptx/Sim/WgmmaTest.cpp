//===- WgmmaTest.cpp - tests of wgmma and mma -------------------*- C++ -*-===//
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

/// Small whole numbers, exact in every type.
float valueOf(unsigned row, unsigned k) {
  return float(int((row * 7 + k * 3) % 5) - 2);
}

uint16_t bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return uint16_t(bits >> 16);
}

uint8_t e4m3(float value) {
  const uint8_t values[] = {0xC0, 0xB8, 0x00, 0x38, 0x40};
  return values[int(value) + 2];
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

constexpr unsigned kColumns = 16;

/// 128 threads copy A (64 rows at sm) and B (16 rows at sm + 8192) as they are
/// in memory, multiply once or twice, and write their accumulators.
std::string wgmmaKernel(const std::string &form, const std::string &descA,
                        const std::string &descB,
                        const std::string &tail = ", 1, 1, 0, 0",
                        const char *one = "0f3F800000") {
  std::string sums = "{%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}";
  std::string body =
      // 80 bytes per thread: 10240 in all.
      "mul.wide.u32 %rd3, %r0, 80;\nadd.s64 %rd4, %rd0, %rd3;\n"
      "mov.b64 %rd5, sm;\nadd.s64 %rd6, %rd5, %rd3;\n";
  for (unsigned i = 0; i < 80; i += 16) {
    std::string at = std::to_string(i);
    body += "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd4+" + at +
            "];\nst.shared.v4.b32 [%rd6+" + at + "], {%r1, %r2, %r3, %r4};\n";
  }
  body += "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
  for (unsigned i = 0; i < 8; ++i)
    body += "mov.b32 %r" + std::to_string(20 + i) + ", " + one + ";\n";
  body += "shr.u64 %rd7, %rd5, 4;\nand.b64 %rd7, %rd7, 16383;\n"
          "or.b64 %rd8, %rd7, " +
          descA + ";\nadd.s64 %rd9, %rd7, 512;\nor.b64 %rd9, %rd9, " + descB +
          ";\nsetp.ne.b32 %p1, 1, 0;\n"
          "wgmma.fence.sync.aligned;\n"
          "wgmma.mma_async.sync.aligned." +
          form + " " + sums + ", %rd8, %rd9, %p1" + tail +
          ";\nwgmma.commit_group.sync.aligned;\n"
          "wgmma.wait_group.sync.aligned 0;\n"
          "mul.wide.u32 %rd10, %r0, 32;\nadd.s64 %rd11, %rd1, %rd10;\n"
          "st.global.v4.b32 [%rd11], {%r20, %r21, %r22, %r23};\n"
          "st.global.v4.b32 [%rd11+16], {%r24, %r25, %r26, %r27};";
  return kernelText(body, 2, 128, ".extern .shared .align 1024 .b8 sm[];");
}

/// Byte offset of an element of a matrix in shared memory.
using Place = unsigned (*)(unsigned row, unsigned byte);

unsigned swizzled(unsigned row, unsigned byte) {
  unsigned address = row / 8 * 1024 + row % 8 * 128 + byte;
  return address ^ ((address >> 7 & 7) << 4);
}

/// Without swizzle, a block is 8 rows of 16 bytes; blocks are 128 bytes apart
/// along K, 256 along the rows.
unsigned blocked(unsigned row, unsigned byte) {
  return row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
}

/// Rows are adjacent: 64 rows at one k are 128 bytes.
unsigned transposed(unsigned row, unsigned byte) {
  unsigned k = byte / 2;
  unsigned address = k / 8 * 1024 + k % 8 * 128 + row * 2 + byte % 2;
  return address ^ ((address >> 7 & 7) << 4);
}

/// A of 16-bit elements in registers, a thread's four registers adjacent.
unsigned inFragments(unsigned row, unsigned byte) {
  unsigned k = byte / 2;
  unsigned thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
  unsigned number = row % 16 / 8 + k / 8 * 2;
  return thread * 16 + number * 4 + byte % 4;
}

std::string runWgmma(const std::string &text, Place place, unsigned depth,
                     unsigned bytes, uint64_t seeds = kSeeds,
                     Place placeOfA = nullptr) {
  std::vector<uint8_t> memory(10240);
  bool areIntegers = text.find(".s8.s8") != std::string::npos;
  auto put = [&](unsigned base, Place place, unsigned row, unsigned k,
                 float value) {
    uint16_t bits = bytes == 2    ? bfloat(value)
                    : areIntegers ? uint8_t(int8_t(value))
                                  : e4m3(value);
    for (unsigned i = 0; i < bytes; ++i)
      memory[base + place(row, k * bytes + i)] = uint8_t(bits >> (8 * i));
  };
  for (unsigned k = 0; k < depth; ++k) {
    for (unsigned row = 0; row < 64; ++row)
      put(0, placeOfA ? placeOfA : place, row, k, valueOf(row, k));
    for (unsigned row = 0; row < kColumns; ++row)
      put(8192, place, row, k, valueOf(row + 11, k));
  }
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(memory);
    uint64_t result = kernel.output(128 * 32);
    if (moert::Status status = kernel.run(1, 128, 16384); !status)
      return status.message();
    EXPECT_EQ(kernel.simulator.statistics().work,
              (Work{0, 0, 64 * kColumns * depth}));
    std::vector<float> sums;
    if (areIntegers)
      for (int32_t sum : kernel.read<int32_t>(result, 1024))
        sums.push_back(float(sum));
    else
      sums = kernel.read<float>(result, 1024);
    for (unsigned thread = 0; thread < 128; ++thread)
      for (unsigned i = 0; i < 8; ++i) {
        unsigned row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i >> 1 & 1);
        unsigned column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        float expected = 1;
        for (unsigned k = 0; k < depth; ++k)
          expected += valueOf(row, k) * valueOf(column + 11, k);
        if (sums[thread * 8 + i] != expected)
          return "wrong sum";
      }
  }
  return "";
}

const char kBfloatForm[] = "m64n16k16.f32.bf16.bf16";
// 128-byte swizzle, groups of 8 rows 1024 bytes apart.
const char kSwizzled[] = "4611686293305360384";

TEST(Wgmma, SwizzledDepth) {
  EXPECT_EQ(
      runWgmma(wgmmaKernel(kBfloatForm, kSwizzled, kSwizzled), swizzled, 16, 2),
      "");
  EXPECT_EQ(runWgmma(wgmmaKernel("m64n16k32.f32.e4m3.e4m3", kSwizzled,
                                 kSwizzled, ", 1, 1"),
                     swizzled, 32, 1),
            "");
}

TEST(Wgmma, Integers) {
  auto run = [&](const std::string &form, const char *first) {
    return runWgmma(wgmmaKernel(form, kSwizzled, kSwizzled, "", first),
                    swizzled, 32, 1);
  };
  EXPECT_EQ(run("m64n16k32.s32.s8.s8", "1"), "");
  // Integer accumulators are no f32, and no other shapes exist.
  EXPECT_EQ(run("m64n16k32.s32.s8.s8", "0f3F800000"), "wrong sum");
  for (const char *form : {"m64n16k32.f32.s8.s8", "m64n16k32.s32.e4m3.e4m3",
                           "m64n16k32.s32.s8.e4m3", "m64n40k32.s32.s8.s8"})
    EXPECT_MESSAGE(run(form, "1"), form);
}

TEST(Wgmma, Blocks) {
  // No swizzle: offset of 128 bytes at bit 16, of 256 bytes at bit 32.
  std::string desc = std::to_string(uint64_t(8) << 16 | uint64_t(16) << 32);
  EXPECT_EQ(runWgmma(wgmmaKernel(kBfloatForm, desc, desc), blocked, 16, 2), "");
}

TEST(Wgmma, TransposedRows) {
  EXPECT_EQ(
      runWgmma(wgmmaKernel(kBfloatForm, kSwizzled, kSwizzled, ", 1, 1, 1, 1"),
               transposed, 16, 2),
      "");
}

TEST(Wgmma, MutantsDie) {
  std::string text = wgmmaKernel(kBfloatForm, kSwizzled, kSwizzled);
  auto run = [&](const std::string &mutant) {
    return runWgmma(mutant, swizzled, 16, 2);
  };
  EXPECT_MESSAGE(run(without(text, "fence.proxy.async.shared::cta;")),
                 "unfenced generic write");
  EXPECT_NE(run(without(text, "bar.sync 0;")), "");
  EXPECT_MESSAGE(run(without(text, "wgmma.fence.sync.aligned;")),
                 "wgmma.fence");
  EXPECT_MESSAGE(run(without(text, "wgmma.commit_group.sync.aligned;")),
                 "in flight");
  EXPECT_MESSAGE(run(without(text, "wgmma.wait_group.sync.aligned 0;")),
                 "in flight");
  EXPECT_MESSAGE(run(replaced(text, "wait_group.sync.aligned 0",
                              "wait_group.sync.aligned 1")),
                 "in flight");
  // Writes shared memory that MMAs may still read.
  EXPECT_MESSAGE(run(replaced(text, "wgmma.wait_group.sync.aligned 0;",
                              "st.shared.b32 [%rd6], 0;\n"
                              "wgmma.wait_group.sync.aligned 0;")),
                 "race");
  EXPECT_MESSAGE(run(replaced(text, "and.b64 %rd7, %rd7, 16383;",
                              "or.b64 %rd7, %rd7, 16383;")),
                 "outside shared memory");
}

TEST(Wgmma, FragmentsInFlight) {
  // A in registers, which the MMA owns until a wait.
  std::string load = "mul.wide.u32 %rd12, %r0, 16;\n"
                     "add.s64 %rd12, %rd12, %rd5;\n"
                     "ld.shared.v4.b32 {%r30, %r31, %r32, %r33}, [%rd12];\n";
  std::string text =
      replaced(wgmmaKernel(kBfloatForm, kSwizzled, kSwizzled, ", 1, 1, 0"),
               "}, %rd8, %rd9", "}, {%r30, %r31, %r32, %r33}, %rd9");
  std::string early = replaced(text, "wgmma.fence", load + "wgmma.fence");
  auto run = [&](const std::string &mutant) {
    return runWgmma(mutant, swizzled, 16, 2, kSeeds, inFragments);
  };
  EXPECT_EQ(run(early), "");
  // Without a fence after the loads, the MMA might not see the registers.
  EXPECT_MESSAGE(
      run(replaced(text, "wgmma.mma_async", load + "wgmma.mma_async")),
      "without a later wgmma.fence");
  for (std::string use : {"mov.b32 %r32, 0;\n", "mov.b32 %r34, %r32;\n"}) {
    std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
    EXPECT_EQ(run(replaced(early, wait, wait + use)), "");
    EXPECT_MESSAGE(run(replaced(early, wait, use + wait)), "in flight");
  }
}

TEST(Wgmma, NeedsAllWarps) {
  std::string text =
      replaced(wgmmaKernel(kBfloatForm, kSwizzled, kSwizzled), "wgmma.fence",
               "setp.ge.u32 %p2, %r0, 96;\n@%p2 bra end;\nwgmma.fence");
  text = replaced(text, "\nret;\n}", "\nend:\nret;\n}");
  EXPECT_MESSAGE(runWgmma(text, swizzled, 16, 2), "deadlock");
}

//===----------------------------------------------------------------------===//
// mma, ldmatrix, stmatrix
//===----------------------------------------------------------------------===//

TEST(Mma, FragmentsFromLdmatrix) {
  // A: 16 rows of 32 bytes at sm, B: 8 rows of 32 bytes at sm + 512.
  std::string text = kernelText(
      "mul.wide.u32 %rd3, %r0, 16;\nadd.s64 %rd4, %rd0, %rd3;\n"
      "mov.b64 %rd5, sm;\nadd.s64 %rd6, %rd5, %rd3;\n"
      "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd4];\n"
      "st.shared.v4.b32 [%rd6], {%r1, %r2, %r3, %r4};\n"
      "setp.ge.u32 %p1, %r0, 16;\n@%p1 bra copied;\n"
      "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd4+512];\n"
      "st.shared.v4.b32 [%rd6+512], {%r1, %r2, %r3, %r4};\n"
      "copied:\nbar.warp.sync -1;\n"
      // Lanes 0 to 15 point to the rows' first halves, the others to the second
      // ones.
      "and.b32 %r5, %r0, 15;\nshl.b32 %r5, %r5, 5;\nand.b32 %r6, %r0, 16;\n"
      "add.s32 %r5, %r5, %r6;\ncvt.u64.u32 %rd7, %r5;\n"
      "add.s64 %rd8, %rd5, %rd7;\n"
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, "
      "[%rd8];\n"
      "and.b32 %r7, %r0, 7;\nshl.b32 %r7, %r7, 5;\nand.b32 %r8, %r0, 8;\n"
      "shl.b32 %r8, %r8, 1;\nadd.s32 %r7, %r7, %r8;\n"
      "cvt.u64.u32 %rd9, %r7;\nadd.s64 %rd10, %rd5, %rd9;\n"
      "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r14, %r15}, [%rd10+512];\n"
      "mov.b32 %r16, 0;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%r20, %r21, %r22, %r23}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, "
      "{%r16, %r16, %r16, %r16};\n"
      "add.s64 %rd11, %rd1, %rd3;\n"
      "st.global.v4.b32 [%rd11], {%r20, %r21, %r22, %r23};",
      2, 32, ".extern .shared .align 16 .b8 sm[];");
  std::vector<uint16_t> memory(16 * 16 + 8 * 16);
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned row = 0; row < 16; ++row)
      memory[row * 16 + k] = bfloat(valueOf(row, k));
    for (unsigned row = 0; row < 8; ++row)
      memory[256 + row * 16 + k] = bfloat(valueOf(row + 3, k));
  }
  KernelRun kernel(text, 1);
  kernel.input(memory);
  uint64_t result = kernel.output(512);
  moert::Status status = kernel.run(1, 32, 1024);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(kernel.simulator.statistics().work, (Work{0, 0, 16 * 8 * 16}));
  std::vector<float> sums = kernel.read<float>(result, 128);
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i) {
      float expected = 0;
      for (unsigned k = 0; k < 16; ++k)
        expected += valueOf(lane / 4 + 8 * (i >> 1), k) *
                    valueOf(lane % 4 * 2 + i % 2 + 3, k);
      EXPECT_EQ(sums[lane * 4 + i], expected) << lane << " " << i;
    }
  status = KernelRun(without(text, "copied:\nbar.warp.sync -1;\n")).loaded;
  EXPECT_FALSE(status);
  KernelRun mutant(without(text, "bar.warp.sync -1;"));
  mutant.input(memory);
  mutant.output(512);
  EXPECT_MESSAGE(mutant.run(1, 32, 1024).message(), "race");
}

TEST(Stmatrix, TransposesOnItsWay) {
  // Lane l holds the pair (2 l, 2 l + 1) of an 8x8 matrix.
  std::string text = kernelText(
      "shl.b32 %r1, %r0, 1;\nadd.s32 %r2, %r1, 1;\nshl.b32 %r2, %r2, 16;\n"
      "or.b32 %r3, %r1, %r2;\nand.b32 %r4, %r0, 7;\nshl.b32 %r4, %r4, 4;\n"
      "mov.b32 %r5, sm;\nadd.s32 %r5, %r5, %r4;\n"
      "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r5], {%r3};\n"
      "bar.warp.sync -1;\n"
      "mul.wide.u32 %rd3, %r0, 4;\nmov.b64 %rd4, sm;\n"
      "add.s64 %rd5, %rd4, %rd3;\nadd.s64 %rd6, %rd0, %rd3;\n"
      "ld.shared.b32 %r6, [%rd5];\nst.global.b32 [%rd6], %r6;",
      1, 32, ".extern .shared .align 16 .b8 sm[];");
  KernelRun kernel(text);
  uint64_t result = kernel.output(128);
  moert::Status status = kernel.run(1, 32, 1024);
  ASSERT_TRUE(status) << status.message();
  std::vector<uint16_t> values = kernel.read<uint16_t>(result, 64);
  for (unsigned row = 0; row < 8; ++row)
    for (unsigned column = 0; column < 8; ++column)
      EXPECT_EQ(values[row * 8 + column], column * 8 + row);
}

} // namespace
