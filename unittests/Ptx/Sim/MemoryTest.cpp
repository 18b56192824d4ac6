//===- MemoryTest.cpp - tests of bounds and initialization ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

/// The error of a kernel of one thread with a buffer of 64 bytes at %rd0 and
/// 128 bytes of shared memory at `sm`.
std::string errorOf(const std::string &body) {
  KernelRun kernel(kernelText(body, 1, /*threads=*/1,
                              ".extern .shared .align 16 .b8 sm[];"));
  std::vector<uint32_t> data(16, 5);
  kernel.input(data);
  return kernel.run(1, 1, 128).message();
}

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Memory, InBounds) {
  EXPECT_EQ(errorOf("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0+48];"), "");
  EXPECT_EQ(errorOf("st.shared.b32 [sm+124], 1;\nld.shared.b32 %r1, [sm+124];"),
            "");
}

TEST(Memory, OutOfBounds) {
  std::string text = errorOf("ld.global.b32 %r1, [%rd0+64];");
  EXPECT_MESSAGE(text, "out of bounds");
  EXPECT_MESSAGE(text, "buffer 0 + 64");
  EXPECT_MESSAGE(text, "test.ptx:16");
  EXPECT_MESSAGE(text, "thread 0");
  EXPECT_MESSAGE(errorOf("st.shared.b32 [sm+128], 1;"), "out of bounds");
  EXPECT_MESSAGE(errorOf("ld.global.b32 %r1, [64];"),
                 "no memory was allocated");
  EXPECT_MESSAGE(errorOf("ld.global.b32 %r1, [%rd0+-4];"), "allocated");
}

TEST(Memory, BulkPrefetch) {
  auto prefetch = [](const std::string &operands) {
    return errorOf("cp.async.bulk.prefetch.L2.global " + operands + ";");
  };
  EXPECT_EQ(prefetch("[%rd0+32], 32"), "");
  EXPECT_EQ(errorOf("mov.b32 %r1, 64;\nmov.b64 %rd3, 0;\n"
                    "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd0], "
                    "%r1, %rd3;"),
            "");
  EXPECT_MESSAGE(prefetch("[%rd0+48], 32"), "out of bounds");
  EXPECT_MESSAGE(prefetch("[%rd0+8], 16"), "not a multiple of 16");
  EXPECT_MESSAGE(prefetch("[%rd0], 24"), "a multiple of 16 is needed");
  EXPECT_MESSAGE(prefetch("[%rd0], 0"), "prefetches 0 bytes");
}

TEST(Memory, Misaligned) {
  EXPECT_MESSAGE(errorOf("ld.global.v2.b32 {%r1, %r2}, [%rd0+4];"),
                 "not a multiple of 8");
  EXPECT_MESSAGE(errorOf("st.shared.b32 [sm+2], 1;"), "not a multiple of 4");
}

TEST(Memory, Uninitialized) {
  EXPECT_MESSAGE(errorOf("ld.shared.b32 %r1, [sm];"), "never written");
  EXPECT_MESSAGE(errorOf("st.shared.b16 [sm], %rs1;\nld.shared.b32 %r1, [sm];"),
                 "never written");
  EXPECT_EQ(errorOf("mov.b16 %rs1, 1;\nst.shared.b16 [sm], %rs1;\n"
                    "st.shared.b16 [sm+2], %rs1;\nld.shared.b32 %r1, [sm];"),
            "");
}

TEST(Memory, NarrowElements) {
  KernelRun kernel(kernelText("ld.global.u8 %rs1, [%rd0+1];\n"
                              "ld.global.s8 %r1, [%rd0+1];\n"
                              "cvt.u32.u16 %r2, %rs1;\n"
                              "st.global.b8 [%rd0+2], %r1;\n"
                              "st.global.v2.b32 [%rd0+8], {%r1, %r2};",
                              1, 1));
  uint64_t buffer = kernel.input(std::vector<uint32_t>{0xFF00, 0, 0, 0});
  moert::Status status = kernel.run(1, 1);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(kernel.read<uint32_t>(buffer, 4),
            (std::vector<uint32_t>{0xFFFF00, 0, ~0u, 0xFF}));
}

TEST(Memory, GenericLocalAndModuleVariables) {
  KernelRun kernel(
      kernelText(".local .align 8 .b8 depot[16];\n"
                 "mov.b64 %rd3, depot;\ncvta.local.u64 %rd4, %rd3;\n"
                 "st.b32 [%rd4+4], 9;\nld.local.b32 %r1, [%rd3+4];\n"
                 "st.global.b32 [%rd0], %r1;\n"
                 "mov.b64 %rd5, table;\nld.global.b32 %r2, [%rd5+4];\n"
                 "st.global.b32 [%rd0+4], %r2;\n"
                 "mov.b64 %rd6, sm;\ncvta.shared.u64 %rd7, %rd6;\n"
                 "st.b32 [%rd7], 3;\nld.shared.b32 %r3, [sm];\n"
                 "st.global.b32 [%rd0+8], %r3;",
                 1, 1,
                 ".shared .align 4 .b8 sm[4];\n"
                 ".global .align 4 .b32 table[2] = {1, 77};"));
  uint64_t buffer = kernel.output(12);
  moert::Status status = kernel.run(1, 1);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(kernel.read<uint32_t>(buffer, 3),
            (std::vector<uint32_t>{9, 77, 3}));
}

TEST(Memory, AtomicsOfManyCtas) {
  KernelRun kernel(kernelText("atom.global.add.u32 %r1, [%rd0], 2;\n"
                              "red.global.max.u32 [%rd0+4], %r0;\n"
                              "atom.global.cas.b32 %r2, [%rd0+8], 0, 5;",
                              1),
                   /*seed=*/3);
  uint64_t buffer = kernel.input(std::vector<uint32_t>{0, 0, 0});
  moert::Status status = kernel.run(/*grid=*/10);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(kernel.read<uint32_t>(buffer, 3),
            (std::vector<uint32_t>{640, 31, 5}));
}

TEST(Memory, LaunchesThatCannotBe) {
  KernelRun kernel(kernelText("", 1, 64));
  kernel.output(4);
  EXPECT_MESSAGE(kernel.run(1, 32).message(), "was compiled for 64");
  EXPECT_MESSAGE(kernel.run(0, 64).message(), "grid of 0");
  EXPECT_MESSAGE(kernel.run(1, 64, 1 << 20).message(), "227 KiB");
}

TEST(Memory, TrapsAndErrorsLeaveAUsableSimulator) {
  KernelRun kernel(kernelText("ld.global.b32 %r1, [%rd0];\n"
                              "setp.ne.b32 %p1, %r1, 0;\n@%p1 trap;",
                              1));
  uint64_t buffer = kernel.input(std::vector<uint32_t>{1});
  EXPECT_MESSAGE(kernel.run().message(), "trapped");
  uint32_t zero = 0;
  ASSERT_TRUE(kernel.simulator.write(buffer, &zero, sizeof(zero)));
  EXPECT_TRUE(kernel.run());
}

} // namespace
