//===- GemmTest.cpp - cpu.gemm against double loops -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

struct Config {
  int64_t m = 4, n = 4, k = 0, nTile = 16, lanes = 8, rows = 0,
          instructionK = 0;
  std::string getText() const {
    auto field = [](const char *name, int64_t value) {
      return std::string(name) + " = " + std::to_string(value);
    };
    return "#tile.cpu_gemm<" + field("register_rows", m) +
           field(", register_columns", n) + field(", block_k", k) +
           field(", columns_per_cta", nTile) + field(", lanes", lanes) +
           field(", rows_per_cta", rows) +
           field(", instruction_k", instructionK) + ">";
  }
};

double tolerance(DType dtype) {
  return dtype == DType::F32 ? 2e-6 : dtype == DType::BF16 ? 8e-3 : 1e-3;
}

int64_t ceilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

std::string pad(const Array &a, bool dynamic) { return a.getType(dynamic); }

/// A grouped gemm with gather; with a layout also silu(gate) * up, biases, row
/// weights and an elementwise addend: all operands of an epilogue.
struct Grouped {
  DType dtype;
  int64_t sizeK, columns;
  std::vector<int64_t> counts;
  std::string order; // empty without pairs
  Config config;
  std::string cpu = "host";
};

void runGrouped(const Grouped &g) {
  bool paired = !g.order.empty();
  int64_t groups = g.counts.size();
  int64_t weightRows = g.columns * (paired ? 2 : 1);
  int64_t positions = 0, tokens = 7;
  Array offsets(DType::I32, {groups + 1});
  for (int64_t i = 0; i < groups; ++i) {
    offsets.set(i, positions);
    positions += g.counts[i];
  }
  offsets.set(groups, positions);
  Array input(g.dtype, {tokens, g.sizeK}),
      result(g.dtype, {positions, g.columns}),
      weight(g.dtype, {groups, weightRows, g.sizeK}),
      bias(g.dtype, {groups, weightRows}),
      added(g.dtype, {positions, g.columns}), source(DType::I32, {positions}),
      scale(DType::F32, {positions, 1});
  input.randomize(1);
  weight.randomize(2);
  bias.randomize(3);
  scale.randomize(4);
  added.randomize(5);
  result.fill(77);
  for (int64_t p = 0; p < positions; ++p)
    source.set(p, (p * 5 + 3) % tokens);

  std::string args = "%x: " + pad(input, true) + ", %w: " + pad(weight, false) +
                     ", %o: " + pad(offsets, false) +
                     ", %s: " + pad(source, true) +
                     ", %r: " + pad(scale, true) + ", %b: " + pad(bias, false) +
                     ", %a: " + pad(added, true) + ", %y: " + pad(result, true);
  std::string head = "tile.kernel @k(" + args + ", %t: i64) {\n";
  std::string op =
      "tile.gemm tokens(%t) ins(%x, %w : " + pad(input, true) + ", " +
      pad(weight, false) + ") offsets(%o : " + pad(offsets, false) +
      ") source(%s : " + pad(source, true) + ") rows(%r : " + pad(scale, true) +
      ") columns(%b : " + pad(bias, false) +
      ") elementwise(%a : " + pad(added, true) +
      ") outs(%y : " + pad(result, true) + ") epilogue {\n";
  std::string region = paired ? R"(
    ^bb0(%g: f32, %u: f32, %rw: f32, %bg: f32, %bu: f32, %e: f32):
      %one = arith.constant 1.0 : f32
      %g1 = arith.addf %g, %bg : f32
      %u1 = arith.addf %u, %bu : f32
      %ng = arith.negf %g1 : f32
      %ex = math.exp %ng : f32
      %d = arith.addf %one, %ex : f32
      %sg = arith.divf %g1, %d : f32
      %v = arith.mulf %sg, %u1 : f32
      %vw = arith.mulf %v, %rw : f32
      %z = arith.addf %vw, %e : f32
      tile.yield %z : f32
  })"
                              : R"(
    ^bb0(%g: f32, %rw: f32, %bg: f32, %e: f32):
      %g1 = arith.addf %g, %bg : f32
      %vw = arith.mulf %g1, %rw : f32
      %z = arith.addf %vw, %e : f32
      tile.yield %z : f32
  })";
  std::string attributes =
      "{config = " + g.config.getText() +
      (paired ? ", layout = #moe.weight_layout<order = " + g.order + ">" : "") +
      "}";
  CompiledKernels kernels(
      head + op + region + attributes + "\ntile.return\n}\n", g.cpu);
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run(
      "k", groups * ceilDiv(g.columns, g.config.nTile),
      {&input, &weight, &offsets, &source, &scale, &bias, &added, &result},
      tokens);

  std::vector<double> expected(positions * g.columns);
  for (int64_t group = 0, p = 0; group < groups; ++group)
    for (int64_t i = 0; i < g.counts[group]; ++i, ++p)
      for (int64_t c = 0; c < g.columns; ++c) {
        auto value = [&](int64_t row) {
          double sum = bias.get(group, row);
          for (int64_t k = 0; k < g.sizeK; ++k)
            sum += input.get(source.get(p), k) *
                   weight.get((group * weightRows + row) * g.sizeK + k);
          return sum;
        };
        double v;
        if (paired) {
          int64_t gate = g.order == "gate_up"   ? c
                         : g.order == "up_gate" ? c + g.columns
                                                : 2 * c;
          int64_t up = g.order == "gate_up"   ? c + g.columns
                       : g.order == "up_gate" ? c
                                              : 2 * c + 1;
          double x = value(gate);
          v = x / (1 + std::exp(-x)) * value(up);
        } else {
          v = value(c);
        }
        expected[p * g.columns + c] = v * scale.get(p) + added.get(p, c);
      }
  expectClose(result, expected, tolerance(g.dtype));
}

TEST(GemmTest, GroupedPlain) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    runGrouped({dtype, 64, 32, {4, 0, 1, 9}, "", {}});
}

TEST(GemmTest, GroupedPairs) {
  for (std::string order : {"gate_up", "up_gate", "interleaved"})
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      runGrouped({dtype, 128, 32, {3, 0, 5}, order, {}});
}

/// Values of K that are no multiple of a vector, shorter than one too.
TEST(GemmTest, KTails) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t sizeK : {511, 33, 17, 5, 1})
      runGrouped({dtype, sizeK, 16, {2, 3}, "", {}});
}

TEST(GemmTest, ColumnTails) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    runGrouped({dtype, 64, 30, {2, 5}, "", {}});
    runGrouped({dtype, 40, 3, {2, 5}, "", {}});
    for (std::string order : {"gate_up", "up_gate", "interleaved"})
      runGrouped({dtype, 64, 21, {5}, order, {}});
  }
}

/// Every number of rows up to two blocks of m.
// field-bug: DeepGEMM#268
TEST(GemmTest, RowTails) {
  runGrouped({DType::BF16, 64, 16, {1, 2, 3, 4, 5, 6, 7, 8, 9}, "", {}});
  Config three;
  three.m = 3;
  runGrouped({DType::BF16, 64, 16, {1, 2, 3, 4, 5, 6, 7}, "gate_up", three});
}

/// More rows than one pass over the N tile takes.
TEST(GemmTest, SeveralPasses) {
  Config config;
  config.rows = 8;
  runGrouped({DType::F32, 32, 16, {30, 8, 17}, "", config});
  config.rows = 0;
  runGrouped({DType::F32, 32, 16, {150}, "gate_up", config});
}

TEST(GemmTest, Configs) {
  for (int64_t lanes : {4, 8, 16})
    for (int64_t n : {2, 4, 8})
      for (int64_t k : {0, 64}) {
        Config config{/*m=*/2, n, k, /*nTile=*/24, lanes, /*rows=*/16};
        runGrouped({DType::BF16, 200, 40, {5, 1}, "interleaved", config});
        if (n % 4 == 0)
          runGrouped({DType::F16, 200, 40, {5, 1}, "", config});
      }
}

bool hostHas(CpuProducts products) {
  return Target::hostCpu().products >= products;
}

TEST(GemmTest, PairsOfBF16) {
  if (!hostHas(CpuProducts::Bf16))
    GTEST_SKIP() << "needs AVX512_BF16";
  for (int64_t lanes : {4, 16})
    for (int64_t sizeK : {128, 47, 5}) {
      Config config{/*m=*/4,    /*n=*/4,           /*k=*/0, /*nTile=*/16,
                    lanes,
                    /*rows=*/0, /*instructionK=*/2};
      runGrouped({DType::BF16, sizeK, 20, {5, 0, 1}, "", config});
      runGrouped({DType::BF16, sizeK, 12, {3}, "interleaved", config});
    }
}

/// The configs of AMX: one or two tiles of rows and of columns.
TEST(GemmTest, TilesOfBF16) {
  if (!hostHas(CpuProducts::Amx))
    GTEST_SKIP() << "needs AMX_BF16";
  for (int64_t m : {16, 32}) {
    Config config{m,
                  /*n=*/16,
                  /*k=*/32,
                  /*nTile=*/32,
                  /*lanes=*/16,
                  /*rows=*/0,
                  /*instructionK=*/32};
    for (std::string order : {"", "gate_up", "up_gate", "interleaved"})
      runGrouped({DType::BF16, 96, 48, {1, 0, 16, 33}, order, config});
    config.n = 32;
    config.k = 64;
    runGrouped({DType::BF16, 128, 64, {2, 17, 1}, "", config});
  }
}

/// More rows than the copy for AMX holds, of long rows one tile.
TEST(GemmTest, TilesInSeveralPasses) {
  if (!hostHas(CpuProducts::Amx))
    GTEST_SKIP() << "needs AMX_BF16";
  Config config{/*m=*/32,           /*n=*/16,     /*k=*/32,
                /*nTile=*/16,       /*lanes=*/16, /*rows=*/0,
                /*instructionK=*/32};
  runGrouped({DType::BF16, 32, 16, {65, 129}, "gate_up", config});
  runGrouped({DType::BF16, 8192, 16, {17}, "", config});
}

TEST(GemmTest, BaselineCpu) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    runGrouped({dtype, 100, 21, {5, 0, 2}, "gate_up", {}, "x86-64-v3"});
}

//===----------------------------------------------------------------------===//
// Dense products
//===----------------------------------------------------------------------===//

/// `valid` < 0 means without the operand.
void runDense(DType dtype, int64_t tokens, int64_t capacity, int64_t valid,
              Config config, int64_t sizeK = 48, int64_t columns = 20) {
  Array input(dtype, {capacity, sizeK}), weight(dtype, {columns, sizeK}),
      count(DType::I32, {1}), result(DType::F32, {capacity, columns});
  input.randomize(1);
  weight.randomize(2);
  result.fill(77);
  count.set(0, valid);
  bool hasValid = valid >= 0;
  std::string op = "tile.gemm tokens(%t) ins(%x, %w : " + pad(input, true) +
                   ", " + pad(weight, false) + ")" +
                   (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
                   " outs(%y : " + pad(result, true) +
                   ") {config = " + config.getText() + "}\n";
  CompiledKernels kernels("tile.kernel @k(%x: " + pad(input, true) +
                          ", %w: " + pad(weight, false) +
                          ", %v: memref<1xi32>, %y: " + pad(result, true) +
                          ", %t: i64) {\n" + op + "tile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k",
              ceilDiv(columns, config.nTile) * ceilDiv(tokens, config.rows),
              {&input, &weight, &count, &result}, tokens);
  std::vector<double> expected(capacity * columns, 77);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      if (!hasValid || t < valid)
        for (int64_t k = 0; k < sizeK; ++k)
          sum += input.get(t, k) * weight.get(c, k);
      expected[t * columns + c] = sum;
      if (hasValid && t >= valid) {
        EXPECT_EQ(result.get(t, c), 0.0);
      }
    }
  expectClose(result, expected, 2e-6);
}

TEST(GemmTest, DenseTiles) {
  if (!hostHas(CpuProducts::Amx))
    GTEST_SKIP() << "needs AMX_BF16";
  Config config{/*m=*/32,           /*n=*/32,     /*k=*/32,
                /*nTile=*/32,       /*lanes=*/16, /*rows=*/32,
                /*instructionK=*/32};
  for (int64_t tokens : {0, 1, 33})
    runDense(DType::BF16, tokens, 40, -1, config, 64, 64);
  runDense(DType::BF16, 21, 24, 3, config, 64, 64);
}

TEST(GemmTest, Dense) {
  Config config;
  config.rows = 8;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t tokens : {0, 1, 8, 21})
      runDense(dtype, tokens, 24, -1, config);
}

TEST(GemmTest, DenseValidTokens) {
  Config config;
  config.rows = 8;
  for (int64_t valid : {0, 1, 8, 10, 21, 1000})
    runDense(DType::BF16, 21, 24, valid, config);
}

/// Masked elements of a tail do not contribute, whatever they are.
TEST(GemmTest, TailsIgnoreInfinities) {
  int64_t sizeK = 40;
  Array input(DType::BF16, {1, sizeK}), weight(DType::BF16, {4, sizeK}),
      result(DType::F32, {1, 4});
  input.fill(1);
  weight.fill(1);
  // Element 30 is in a full k tile and in the last, overlapping one.
  for (int64_t c = 0; c < 4; ++c)
    weight.set(c * sizeK + 30, INFINITY);
  Config config;
  config.rows = 4;
  config.lanes = 16;
  CompiledKernels kernels(
      "tile.kernel @k(%x: memref<?x40xbf16>, %w: memref<4x40xbf16>, "
      "%y: memref<?x4xf32>, %t: i64) {\n tile.gemm tokens(%t) "
      "ins(%x, %w : memref<?x40xbf16>, memref<4x40xbf16>) "
      "outs(%y : memref<?x4xf32>) {config = " +
      config.getText() + "}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", 1, {&input, &weight, &result}, 1);
  for (int64_t c = 0; c < 4; ++c)
    EXPECT_EQ(result.get(c), INFINITY);
}

} // namespace
