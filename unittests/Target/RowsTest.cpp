//===- RowsTest.cpp - cpu.row_map and cpu.gather_reduce ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "gtest/gtest.h"

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

double tolerance(DType dtype) {
  return dtype == DType::F32 ? 1e-6 : dtype == DType::BF16 ? 4e-3 : 5e-4;
}

void runRowMap(DType dtype, int64_t tokens, int64_t columns) {
  Array input(dtype, {tokens, columns}), weight(DType::F32, {tokens, 1}),
      result(dtype, {tokens, columns});
  input.randomize(1);
  weight.randomize(2);
  std::string type = input.getType(true);
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + type + ", %w: memref<?x1xf32>, %y: " + type +
      ", %t: i64) {\n tile.row_map tokens(%t) ins(%x : " + type +
      ") rows(%w : memref<?x1xf32>) outs(%y : " + type +
      ") {\n^bb0(%a: f32, %b: f32):\n%p = arith.mulf %a, %b : f32\n"
      "tile.yield %p : f32\n} {config = #tile.cpu_row_map<"
      "lanes = 8, rows_per_cta = 2>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", (tokens + 1) / 2, {&input, &weight, &result}, tokens);
  std::vector<double> expected;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < columns; ++c)
      expected.push_back(input.get(t, c) * weight.get(t));
  expectClose(result, expected, tolerance(dtype));
}

TEST(RowMap, Rows) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t columns : {16, 30, 3})
      runRowMap(dtype, 5, columns);
}

struct Reduce {
  DType dtype;
  int64_t tokens, topK, columns;
  bool identity, addend;
  /// Below 0: without the operand.
  int64_t valid;
  int64_t n = 0;
};

void runReduce(const Reduce &r) {
  int64_t positions = r.tokens * r.topK;
  Array rows(r.dtype, {positions, r.columns}),
      position(DType::I32, {r.tokens, r.topK}),
      identity(r.dtype, {r.tokens, r.columns}),
      weights(DType::F32, {r.tokens, r.topK}),
      addend(r.dtype, {r.tokens, r.columns}), valid(DType::I32, {1}),
      result(r.dtype, {r.tokens, r.columns});
  rows.randomize(1);
  identity.randomize(2);
  weights.randomize(3);
  addend.randomize(4);
  result.fill(77);
  valid.set(0, r.valid);
  for (int64_t i = 0; i < positions; ++i)
    position.set(i, i % 5 == 2   ? -1
                    : i % 5 == 4 ? (r.identity ? -2 : -1)
                                 : (i * 7 + 1) % positions);
  std::string type = rows.getType(true), slots = position.getType(true),
              factors = weights.getType(true);
  std::string op =
      "tile.gather_reduce tokens(%t) ins(%r, %p : " + type + ", " + slots +
      ")" +
      (r.identity ? " identity(%i, %w : " + type + ", " + factors + ")" : "") +
      (r.addend ? " addend(%a : " + type + ")" : "") +
      (r.valid >= 0 ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
      " outs(%y : " + type +
      ") {config = #tile.cpu_gather_reduce<lanes = 8, "
      "rows_per_cta = 2" +
      (r.n ? ", register_columns = " + std::to_string(r.n) : "") + ">}\n";
  CompiledKernels kernels("tile.kernel @k(%r: " + type + ", %p: " + slots +
                          ", %i: " + type + ", %w: " + factors +
                          ", %a: " + type + ", %v: memref<1xi32>, %y: " + type +
                          ", %t: i64) {\n" + op + "tile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", (r.tokens + 1) / 2,
              {&rows, &position, &identity, &weights, &addend, &valid, &result},
              r.tokens);
  std::vector<double> expected;
  for (int64_t t = 0; t < r.tokens; ++t)
    for (int64_t c = 0; c < r.columns; ++c) {
      double sum = r.addend ? addend.get(t, c) : 0;
      for (int64_t j = 0; j < r.topK; ++j) {
        int64_t slot = position.get(t, j);
        if (slot >= 0)
          sum += rows.get(slot, c);
        else if (slot == -2)
          sum += weights.get(t, j) * identity.get(t, c);
      }
      bool counts = r.valid < 0 || t < r.valid;
      expected.push_back(counts ? sum : 0);
      if (!counts) {
        EXPECT_EQ(result.get(t, c), 0);
      }
    }
  expectClose(result, expected, tolerance(r.dtype));
}

TEST(GatherReduce, Plain) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t columns : {64, 30, 5})
      runReduce({dtype, 5, 3, columns, false, false, -1});
}

TEST(GatherReduce, Everything) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    runReduce({dtype, 7, 5, 70, true, true, 4, 32});
}

TEST(GatherReduce, ValidTokens) {
  for (int64_t valid : {0, 1, 5, 100})
    runReduce({DType::BF16, 5, 2, 24, false, true, valid});
}

TEST(GatherReduce, NoTokens) {
  runReduce({DType::BF16, 0, 2, 24, true, true, -1});
}

} // namespace
