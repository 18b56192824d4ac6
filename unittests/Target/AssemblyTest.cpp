//===- AssemblyTest.cpp - what the machine code may hold --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "gtest/gtest.h"

#include <sstream>

using namespace moec;
using namespace moec::test;

namespace {

/// All functions that the text calls or jumps to by name, except kernels'
/// bodies. (Jumps through a register are jump tables.)
std::string getCalls(const std::string &assembly) {
  std::istringstream lines(assembly);
  std::string line, calls;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string mnemonic, target;
    words >> mnemonic >> target;
    bool isCall = mnemonic.rfind("call", 0) == 0;
    bool isTailCall =
        mnemonic.rfind("jmp", 0) == 0 && target[0] != '.' && target[0] != '*';
    if ((isCall || isTailCall) && target.find("__body") == std::string::npos)
      calls += target + "\n";
  }
  return calls;
}

/// A gated expert gemm, its reduction and a gate: all conversions from and to
/// 16-bit types, and exp, tanh, erf and log1p.
std::string getKernels(const std::string &dtype) {
  std::string text = R"(
tile.kernel @up(%x: memref<?x72xD>, %w: memref<4x44x72xD>, %o: memref<5xi32>,
                %s: memref<?xi32>, %b: memref<4x44xD>, %y: memref<?x22xD>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x72xD>, memref<4x44x72xD>)
      offsets(%o : memref<5xi32>) source(%s : memref<?xi32>) columns(%b : memref<4x44xD>)
      outs(%y : memref<?x22xD>) epilogue {
  ^bb0(%g: f32, %u: f32, %bg: f32, %bu: f32):
    %one = arith.constant 1.0 : f32
    %a = arith.addf %g, %bg : f32
    %n = arith.negf %a : f32
    %e = math.exp %n : f32
    %t0 = math.tanh %a : f32
    %e1 = math.erf %u : f32
    %l = math.log1p %e : f32
    %q = math.sqrt %l : f32
    %0 = arith.addf %t0, %e1 : f32
    %1 = arith.addf %0, %q : f32
    %d = arith.addf %one, %e : f32
    %2 = arith.divf %1, %d : f32
    %m = arith.minimumf %2, %bu : f32
    tile.yield %m : f32
  } {layout = #moe.weight_layout<order = interleaved>,
     config = #tile.cpu_gemm<register_rows = 2, register_columns = 2, columns_per_cta = 16, lanes = 8>}
  tile.return
}
tile.kernel @out(%r: memref<?x30xD>, %p: memref<?x2xi32>, %a: memref<?x30xD>,
                 %y: memref<?x30xD>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x30xD>, memref<?x2xi32>)
      addend(%a : memref<?x30xD>) outs(%y : memref<?x30xD>)
      {config = #tile.cpu_gather_reduce<register_columns = 16, lanes = 8, rows_per_cta = 4>}
  tile.return
}
)";
  for (size_t at; (at = text.find("xD>")) != std::string::npos;)
    text.replace(at, 3, "x" + dtype + ">");
  return text;
}

TEST(Assembly, BaselineHasNoCalls) {
  for (const char *dtype : {"f32", "bf16", "f16"}) {
    CompiledKernels kernels(getKernels(dtype), "x86-64-v3");
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
    std::string assembly = kernels.getAssembly();
    EXPECT_NE(assembly.find("vfmadd"), std::string::npos);
    EXPECT_EQ(assembly.find("zmm"), std::string::npos)
        << "the baseline has no AVX-512";
    EXPECT_EQ(getCalls(assembly), "") << "for " << dtype;
  }
}

TEST(Assembly, UnknownCpu) {
  CompiledKernels kernels(getKernels("f32"), "x87-65");
  EXPECT_NE(kernels.getErrors().find("unknown CPU 'x87-65'"), std::string::npos)
      << kernels.getErrors();
}

TEST(Assembly, CpuBelowTheBaseline) {
  CompiledKernels kernels(getKernels("f32"), "x86-64-v2");
  EXPECT_NE(kernels.getErrors().find("the CPU 'x86-64-v2' lacks avx2"),
            std::string::npos)
      << kernels.getErrors();
}

// field-bug: ktransformers#2018
TEST(Assembly, CpuThatThisMachineIsNot) {
  // No machine has every instruction set of both makers.
  CompiledKernels kernels(getKernels("f32"), "sapphirerapids");
  if (!kernels.isOk()) {
    EXPECT_NE(kernels.getErrors().find("it lacks"), std::string::npos)
        << kernels.getErrors();
  }
}

TEST(Assembly, LanesAndProducts) {
  auto expect = [](const char *cpu, int64_t lanes, CpuProducts products) {
    Target target = getCpuTarget({cpu});
    EXPECT_EQ(target.lanes, lanes) << cpu;
    EXPECT_EQ(target.products, products) << cpu;
  };
  expect("x86-64-v3", 8, CpuProducts::Fma);
  expect("x86-64-v4", 16, CpuProducts::Fma);
  expect("znver4", 16, CpuProducts::Bf16);
  expect("sapphirerapids", 16, CpuProducts::Amx);
}

} // namespace
