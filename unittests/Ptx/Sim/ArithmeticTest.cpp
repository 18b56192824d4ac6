//===- ArithmeticTest.cpp - tests of values ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

#include <cmath>
#include <limits>

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

/// Runs `statements` for 32 threads. %r1 and %r2 hold an element of `a` and
/// `b`; the result is %r3.
std::vector<uint32_t> evaluate(const std::string &statements,
                               std::vector<uint32_t> a,
                               std::vector<uint32_t> b) {
  size_t count = a.size();
  a.resize(32);
  b.resize(32);
  KernelRun kernel(kernelText("mul.wide.u32 %rd10, %r0, 4;\n"
                              "add.s64 %rd11, %rd0, %rd10;\n"
                              "add.s64 %rd12, %rd1, %rd10;\n"
                              "add.s64 %rd13, %rd2, %rd10;\n"
                              "ld.global.b32 %r1, [%rd11];\n"
                              "ld.global.b32 %r2, [%rd12];\n" +
                                  statements + "\nst.global.b32 [%rd13], %r3;",
                              3));
  kernel.input(a);
  kernel.input(b);
  uint64_t result = kernel.output(128);
  moert::Status status = kernel.run();
  EXPECT_TRUE(status) << status.message();
  std::vector<uint32_t> values = kernel.read<uint32_t>(result, 32);
  values.resize(count);
  return values;
}

uint32_t evaluateOne(const std::string &statements, uint32_t a,
                     uint32_t b = 0) {
  return evaluate(statements, {a}, {b})[0];
}

uint32_t bits(float value) {
  uint32_t result;
  std::memcpy(&result, &value, sizeof(result));
  return result;
}

TEST(Arithmetic, Integers) {
  EXPECT_EQ(evaluateOne("add.s32 %r3, %r1, %r2;", 0x7FFFFFFF, 1), 0x80000000u);
  EXPECT_EQ(evaluateOne("mul.hi.u32 %r3, %r1, %r2;", 0xFFFFFFFF, 3), 2u);
  EXPECT_EQ(evaluateOne("mul.hi.s32 %r3, %r1, %r2;", uint32_t(-4), 3),
            uint32_t(-1));
  EXPECT_EQ(evaluateOne("mad.lo.s32 %r3, %r1, %r2, 5;", 7, 6), 47u);
  EXPECT_EQ(evaluateOne("div.s32 %r3, %r1, %r2;", uint32_t(-7), 2),
            uint32_t(-3));
  EXPECT_EQ(evaluateOne("rem.s32 %r3, %r1, %r2;", uint32_t(-7), 2),
            uint32_t(-1));
  EXPECT_EQ(evaluateOne("shl.b32 %r3, %r1, %r2;", 1, 32), 0u);
  EXPECT_EQ(evaluateOne("shr.s32 %r3, %r1, %r2;", 0x80000000, 40), ~0u);
  EXPECT_EQ(evaluateOne("shr.u32 %r3, %r1, %r2;", 0x80000000, 31), 1u);
  EXPECT_EQ(evaluateOne("bfe.u32 %r3, %r1, 4, 8;", 0x12345678), 0x67u);
  EXPECT_EQ(evaluateOne("bfe.s32 %r3, %r1, 4, 8;", 0x00000F80), 0xFFFFFFF8u);
  EXPECT_EQ(evaluateOne("bfi.b32 %r3, %r1, %r2, 4, 8;", 0xAB, 0xFFFFFFFF),
            0xFFFFFABFu);
  EXPECT_EQ(
      evaluateOne("prmt.b32 %r3, %r1, %r2, 0x5410;", 0x1111AAAA, 0x2222BBBB),
      0xBBBBAAAAu);
  EXPECT_EQ(evaluateOne("prmt.b32 %r3, %r1, %r2, 0x8888;", 0x80), ~0u);
  EXPECT_EQ(evaluateOne("popc.b32 %r3, %r1;", 0xF00F), 8u);
  EXPECT_EQ(evaluateOne("clz.b32 %r3, %r1;", 1), 31u);
  EXPECT_EQ(evaluateOne("brev.b32 %r3, %r1;", 1), 0x80000000u);
  EXPECT_EQ(evaluateOne("lop3.b32 %r3, %r1, %r2, 12, 0x96;", 0xA, 0x6), 0u);
  EXPECT_EQ(evaluateOne("shf.l.wrap.b32 %r3, %r1, %r2, 8;", 0x12000000, 0x34),
            0x3412u);
}

TEST(Arithmetic, Floats) {
  float denormal = 1e-40f;
  EXPECT_EQ(
      evaluateOne("add.rn.f32 %r3, %r1, %r2;", bits(denormal), bits(denormal)),
      bits(denormal + denormal));
  EXPECT_EQ(evaluateOne("add.rn.ftz.f32 %r3, %r1, %r2;", bits(denormal),
                        bits(denormal)),
            0u);
  EXPECT_EQ(evaluateOne("fma.rn.f32 %r3, %r1, %r2, 0fBF800000;",
                        bits(1 + 0x1p-23f), bits(1 - 0x1p-23f)),
            bits(-0x1p-46f));
  // Arithmetic returns the canonical NaN, whatever the operands' payload.
  EXPECT_EQ(evaluateOne("add.rn.f32 %r3, %r1, %r2;", 0x7FC12345, bits(1)),
            0x7FFFFFFFu);
  EXPECT_EQ(evaluateOne("min.f32 %r3, %r1, %r2;", bits(NAN), bits(3)), bits(3));
  EXPECT_EQ(evaluateOne("max.NaN.f32 %r3, %r1, %r2;", bits(NAN), bits(3)),
            0x7FFFFFFFu);
  EXPECT_EQ(evaluateOne("min.f32 %r3, %r1, %r2;", bits(0.f), bits(-0.f)),
            bits(-0.f));
  EXPECT_EQ(evaluateOne("neg.f32 %r3, %r1;", 0x7FC00000), 0xFFC00000u);
  EXPECT_EQ(evaluateOne("copysign.f32 %r3, %r1, %r2;", bits(-1), bits(5)),
            bits(-5));
  EXPECT_EQ(evaluateOne("ex2.approx.ftz.f32 %r3, %r1;", bits(3)), bits(8));
  EXPECT_EQ(evaluateOne("ex2.approx.f32 %r3, %r1;", bits(-127)),
            bits(0x1p-127f));
  EXPECT_EQ(evaluateOne("ex2.approx.ftz.f32 %r3, %r1;", bits(-127)), 0u);
  EXPECT_EQ(evaluateOne("ex2.approx.ftz.f32 %r3, %r1;", bits(-INFINITY)), 0u);
  EXPECT_EQ(evaluateOne("rcp.rn.f32 %r3, %r1;", bits(4)), bits(0.25));
  // `.ftz`: subnormal operands and results are 0.
  EXPECT_EQ(evaluateOne("rcp.approx.ftz.f32 %r3, %r1;", bits(-0x1p127f)),
            bits(-0.f));
  EXPECT_EQ(evaluateOne("rcp.approx.ftz.f32 %r3, %r1;", bits(-0x1p-127f)),
            bits(-INFINITY));
  EXPECT_EQ(evaluateOne("rcp.approx.ftz.f32 %r3, %r1;", bits(INFINITY)), 0u);
}

TEST(Arithmetic, Comparisons) {
  std::vector<uint32_t> a{bits(1), bits(NAN), bits(2)},
      b{bits(2), bits(1), bits(2)};
  auto compare = [&](const std::string &form) {
    return evaluate("setp." + form +
                        " %p1, %r1, %r2;\n"
                        "selp.b32 %r3, 1, 0, %p1;",
                    a, b);
  };
  using Bits = std::vector<uint32_t>;
  EXPECT_EQ(compare("lt.f32"), (Bits{1, 0, 0}));
  EXPECT_EQ(compare("ltu.f32"), (Bits{1, 1, 0}));
  EXPECT_EQ(compare("ne.f32"), (Bits{1, 0, 0}));
  EXPECT_EQ(compare("neu.f32"), (Bits{1, 1, 0}));
  EXPECT_EQ(compare("nan.f32"), (Bits{0, 1, 0}));
  EXPECT_EQ(compare("num.f32"), (Bits{1, 0, 1}));
}

TEST(Arithmetic, SmallFloatsRoundOnce) {
  // 1 + 2^-8 is halfway between two bf16; it rounds to the even one below.
  EXPECT_EQ(evaluateOne("cvt.rn.bf16.f32 %rs1, %r1;\ncvt.u32.u16 %r3, %rs1;",
                        bits(1 + 0x1p-8f)),
            0x3F80u);
  EXPECT_EQ(evaluateOne("cvt.rn.bf16x2.f32 %r3, %r1, %r2;", bits(2), bits(1)),
            0x40003F80u);
  EXPECT_EQ(evaluateOne("cvt.rn.f16.f32 %rs1, %r1;\ncvt.u32.u16 %r3, %rs1;",
                        bits(65520)),
            0x7C00u);
  EXPECT_EQ(evaluateOne("cvt.rn.f16.f32 %rs1, %r1;\ncvt.u32.u16 %r3, %rs1;",
                        bits(0x1p-24f)),
            1u);
  EXPECT_EQ(evaluateOne("cvt.rn.satfinite.e4m3x2.f32 %rs1, %r1, %r2;\n"
                        "cvt.u32.u16 %r3, %rs1;",
                        bits(1000), bits(-0.5f)),
            0x7EB0u);
  EXPECT_EQ(evaluateOne("cvt.u16.u32 %rs1, %r1;\n"
                        "cvt.rn.f16x2.e4m3x2 %r3, %rs1;",
                        0x7EB0),
            0x5F00B800u);
  // In f32, the sum would be rounded to a tie first: 1 + 2^-11 + 2^-25.
  EXPECT_EQ(evaluateOne("mov.b32 {%rs1, %rs2}, %r1;\n"
                        "mov.b32 {%rs3, %rs4}, %r2;\n"
                        "fma.rn.f16 %rs5, %rs1, %rs2, %rs3;\n"
                        "cvt.u32.u16 %r3, %rs5;",
                        /*a=*/0x1001u << 16 | 0x1000u, /*b=*/0x3C00u),
            0x3C00u);
}

/// sm_100a instructions: two 32-bit operations at once, and 32-bit sums of
/// 16-bit operands.
TEST(Arithmetic, PairsAndMixedSums) {
  for (auto [form, low, high] :
       {std::tuple("add.rn.f32x2 %rd20, %rd21, %rd21", 2.f, -6.f),
        {"sub.rn.f32x2 %rd20, %rd21, %rd21", 0.f, 0.f},
        {"mul.rn.f32x2 %rd20, %rd21, %rd21", 1.f, 9.f},
        {"fma.rn.f32x2 %rd20, %rd21, %rd21, %rd21", 2.f, 6.f}})
    for (auto [result, expected] :
         {std::pair("{%r3, %r4}", low), {"{%r4, %r3}", high}})
      EXPECT_EQ(evaluateOne(std::string("mov.b64 %rd21, {%r1, %r2};\n") + form +
                                ";\nmov.b64 " + result + ", %rd20;",
                            bits(1), bits(-3)),
                bits(expected))
          << form;
  // 1.5 in bf16 and f16; the sum has bits that neither format can hold.
  for (auto [type, code] : {std::pair("bf16", "0x3FC0"), {"f16", "0x3E00"}}) {
    std::string load = std::string("mov.b16 %rs1, ") + code + ";\n";
    auto run = [&](const std::string &form) {
      return evaluateOne(load + replaced(form, "TYPE", type), bits(0x1p-20f));
    };
    EXPECT_EQ(run("add.rn.f32.TYPE %r3, %rs1, %r1;"), bits(1.5f + 0x1p-20f));
    EXPECT_EQ(run("sub.rn.f32.TYPE %r3, %rs1, %r1;"), bits(1.5f - 0x1p-20f));
    EXPECT_EQ(run("fma.rn.f32.TYPE %r3, %rs1, %rs1, %r1;"),
              bits(2.25f + 0x1p-20f));
  }
}

TEST(Arithmetic, Conversions) {
  EXPECT_EQ(evaluateOne("cvt.rzi.s32.f32 %r3, %r1;", bits(-2.9f)),
            uint32_t(-2));
  EXPECT_EQ(evaluateOne("cvt.rzi.u32.f32 %r3, %r1;", bits(-2.9f)), 0u);
  EXPECT_EQ(evaluateOne("cvt.rzi.s32.f32 %r3, %r1;", bits(3e9f)), 0x7FFFFFFFu);
  EXPECT_EQ(evaluateOne("cvt.rni.f32.f32 %r3, %r1;", bits(2.5f)), bits(2));
  EXPECT_EQ(evaluateOne("cvt.rn.f32.u32 %r3, %r1;", 0x1000001), bits(0x1p24f));
  EXPECT_EQ(evaluateOne("cvt.rn.f32.s32 %r3, %r1;", uint32_t(-3)), bits(-3));
  EXPECT_EQ(evaluateOne("cvt.s32.s8 %r3, %r1;", 0x80), 0xFFFFFF80u);
  EXPECT_EQ(evaluateOne("cvt.sat.f32.f32 %r3, %r1;", bits(1.5f)), bits(1));
}

TEST(Arithmetic, WarpInstructions) {
  std::vector<uint32_t> lanes(32), other(32, 7);
  for (uint32_t i = 0; i < 32; ++i)
    lanes[i] = i;
  std::vector<uint32_t> result =
      evaluate("shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;", lanes, other);
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(result[i], i ^ 1);
  result = evaluate("shfl.sync.up.b32 %r3|%p1, %r1, 4, 0, -1;\n"
                    "selp.b32 %r3, %r3, 99, %p1;",
                    lanes, other);
  EXPECT_EQ(result[3], 99u);
  EXPECT_EQ(result[20], 16u);
  result = evaluate("redux.sync.max.s32 %r3, %r1, -1;", lanes, other);
  EXPECT_EQ(result[0], 31u);
  result = evaluate("setp.lt.u32 %p1, %r1, 3;\n"
                    "vote.sync.ballot.b32 %r3, %p1, -1;",
                    lanes, other);
  EXPECT_EQ(result[9], 7u);
  result = evaluate("and.b32 %r4, %r1, 1;\nmatch.any.sync.b32 %r3, %r4, -1;",
                    lanes, other);
  EXPECT_EQ(result[1], 0xAAAAAAAAu);
}

TEST(Arithmetic, DivergentLanesMeetAgain) {
  std::vector<uint32_t> lanes(32), other(32);
  for (uint32_t i = 0; i < 32; ++i)
    lanes[i] = i;
  // A loop with as many iterations as the lane's number, then a shuffle of all
  // lanes.
  std::vector<uint32_t> result =
      evaluate("mov.b32 %r3, 0;\nmov.b32 %r4, %r1;\n"
               "loop:\nsetp.eq.b32 %p1, %r4, 0;\n@%p1 bra done;\n"
               "add.s32 %r3, %r3, %r4;\nadd.s32 %r4, %r4, -1;\nbra loop;\n"
               "done:\nshfl.sync.idx.b32 %r3, %r3, 31, 31, -1;",
               lanes, other);
  EXPECT_EQ(result[0], 31u * 32 / 2);
  EXPECT_EQ(result[31], 31u * 32 / 2);
}

TEST(Arithmetic, UnknownFormsNameTheLine) {
  for (const char *line :
       {"frobnicate.b32 %r1, %r2;", "add.rz.f32 %r1, %r2, %r3;",
        "cvt.rna.tf32.f32 %r1, %r2;", "ld.global.b32.v3 %r1, [%rd0];",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, "
        "{%r4};"}) {
    KernelRun kernel(kernelText(line, 1));
    ASSERT_FALSE(kernel.loaded) << line;
    EXPECT_NE(kernel.loaded.message().find("line 16"), std::string::npos)
        << kernel.loaded.message();
    EXPECT_NE(kernel.loaded.message().find(line), std::string::npos)
        << kernel.loaded.message();
  }
}

TEST(Arithmetic, BlocksHaveNamesOfTheirOwn) {
  KernelRun kernel(kernelText("{\n.reg .b32 x;\nmov.b32 x, 1;\n"
                              "bra DONE;\ntrap;\nDONE:\n"
                              "st.global.b32 [%rd0], x;\n}\n"
                              "{\n.reg .b32 x;\nmov.b32 x, 2;\n"
                              "bra DONE;\ntrap;\nDONE:\n"
                              "st.global.b32 [%rd0+4], x;\n}",
                              1, /*threads=*/1));
  uint64_t result = kernel.output(8);
  moert::Status status = kernel.run(1, 1);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(kernel.read<uint32_t>(result, 2), (std::vector<uint32_t>{1, 2}));
}

} // namespace
