//===- PipelineTest.cpp - the other pipeline ops, interpreted ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModule.h"

#include <chrono>
#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::interpreter;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Ids = std::vector<int32_t>;
using Floats = std::vector<float>;

/// bf16 bits of a value that bf16 can hold.
uint16_t bf16(float value) {
  uint16_t bits = 0;
  TensorRef tensor;
  tensor.data = &bits;
  tensor.dtype = moert::DType::BF16;
  tensor.shape = {1};
  store(tensor, 0, value);
  return bits;
}

} // namespace

TEST(Permute, SortsStablyAndSkips) {
  TestModule test(R"(
    func.func @f(%i: tensor<?x2xi32>, %w: tensor<?x2xf32>,
                 %v: tensor<1xi32>) -> (tensor<4xi32>, tensor<?x2xi32>,
                 tensor<?xi32>, tensor<?x1xf32>) {
      %o, %p, %s, %r = moe.permute %i, %w num_valid_tokens(%v : tensor<1xi32>)
        {num_experts = 3 : i64, num_zero_experts = 1 : i64}
        : tensor<?x2xi32>, tensor<?x2xf32>
        -> tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
      return %o, %p, %s, %r
        : tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
    })");
  // The last token is padding; 3 is the zero expert, 4 and -1 are out of range.
  Ids ids = {2, 0, 0, 3, -1, 4, 2, 0, 1, 1};
  Floats weights = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Ids valid = {4};
  auto out =
      test.run({view(ids, {5, 2}), view(weights, {5, 2}), view(valid, {1})});
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(valuesOf<int32_t>(out[0]), Ids({0, 3, 3, 5}));
  EXPECT_EQ(valuesOf<int32_t>(out[1]),
            Ids({3, 0, 1, -2, -1, -1, 4, 2, -1, -1}));
  Ids source = valuesOf<int32_t>(out[2]);
  Floats rowWeight = valuesOf<float>(out[3]);
  source.resize(5);
  rowWeight.resize(5);
  EXPECT_EQ(source, Ids({0, 1, 3, 0, 3}));
  EXPECT_EQ(rowWeight, Floats({2, 3, 8, 1, 7}));
}

TEST(Permute, LocalExperts) {
  TestModule test(R"(
    func.func @f(%i: tensor<?x1xi32>, %w: tensor<?x1xf32>)
        -> (tensor<3xi32>, tensor<?x1xi32>) {
      %o, %p, %s, %r = moe.permute %i, %w
        {num_experts = 4 : i64, local_experts = array<i64: 3, 1>}
        : tensor<?x1xi32>, tensor<?x1xf32>
        -> tensor<3xi32>, tensor<?x1xi32>, tensor<?xi32>, tensor<?x1xf32>
      return %o, %p : tensor<3xi32>, tensor<?x1xi32>
    })");
  Ids ids = {1, 0, 3, 1, 2};
  Floats weights(5);
  auto out = test.run({view(ids, {5, 1}), view(weights, {5, 1})});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(valuesOf<int32_t>(out[0]), Ids({0, 1, 3}));
  EXPECT_EQ(valuesOf<int32_t>(out[1]), Ids({1, -1, 0, 2, -1}));
  auto none = test.run({view(ids, {0, 1}), view(weights, {0, 1})});
  ASSERT_EQ(none.size(), 2u);
  EXPECT_EQ(valuesOf<int32_t>(none[0]), Ids({0, 0, 0}));
}

namespace {

/// A gated grouped product whose epilogue is gate + 100 up + row + bias parts.
std::string gated(const std::string &order) {
  return R"(
    func.func @f(%x: tensor<?x2xf32>, %w: tensor<2x4x2xf32>,
                 %o: tensor<3xi32>, %s: tensor<?xi32>, %r: tensor<?x1xf32>,
                 %b: tensor<2x4xf32>) -> tensor<?x2xf32> {
      %0 = moe.grouped_matmul %x, %w : tensor<?x2xf32>, tensor<2x4x2xf32>
        offsets(%o : tensor<3xi32>) source(%s : tensor<?xi32>)
        rows(%r : tensor<?x1xf32>) columns(%b : tensor<2x4xf32>) epilogue {
        ^bb0(%g: f32, %u: f32, %row: f32, %bg: f32, %bu: f32):
          %c = arith.constant 100.0 : f32
          %1 = arith.addf %u, %bu : f32
          %2 = arith.mulf %1, %c : f32
          %3 = arith.addf %g, %bg : f32
          %4 = arith.addf %2, %3 : f32
          %5 = arith.addf %4, %row : f32
          moe.yield %5 : f32
        } {layout = #moe.weight_layout<order = )" +
         order + R"(>} -> tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    })";
}

} // namespace

/// Chunks have two tokens, since at most three chunks are allowed.
TEST(CountSlots, ByHand) {
  TestModule test(R"(
    tile.kernel @count(%i: memref<?x2xi32>, %v: memref<1xi32>,
                       %c: memref<3x2xi32>, %t: i64) {
      tile.count_slots tokens(%t) ids(%i : memref<?x2xi32>)
        num_valid_tokens(%v : memref<1xi32>) outs(%c : memref<3x2xi32>)
        {num_experts = 3 : i64, local_experts = array<i64: 2, 0>,
         chunk_tokens = 1 : i64}
      tile.return
    })");
  Ids ids = {2, 0, 0, 3, -1, 2, 2, 2, 1, 0}, valid = {4};
  Ids counts(6, 77);
  auto kernel = *test.module->getOps<tile::KernelOp>().begin();
  moert::Status status = interpretKernel(
      kernel, {view(ids, {5, 2}), view(valid, {1}), view(counts, {3, 2})}, 5);
  ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(counts, Ids({1, 2, 3, 0, 0, 0}));
  // Few tokens do not get more chunks.
  counts.assign(6, 77);
  ASSERT_TRUE(interpretKernel(
      kernel, {view(ids, {1, 2}), view(valid, {1}), view(counts, {3, 2})}, 1));
  EXPECT_EQ(counts, Ids({1, 1, 77, 77, 77, 77}));
}

TEST(CountSlots, WrongCountsAreRefused) {
  TestModule test(R"(
    tile.kernel @rank(%i: memref<?x1xi32>, %w: memref<?x1xf32>,
                      %c: memref<2x2xi32>, %o: memref<3xi32>,
                      %p: memref<?x1xi32>, %s: memref<?xi32>,
                      %r: memref<?x1xf32>, %t: i64) {
      tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x1xi32>, memref<?x1xf32>)
        counts(%c : memref<2x2xi32>) outs(%o, %p, %s, %r
          : memref<3xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
        {num_experts = 2 : i64, chunk_tokens = 2 : i64}
      tile.return
    })");
  Ids ids = {1, 0, 1}, offsets(3), position(3), source(3);
  Floats weights = {1, 2, 3}, rowWeights(3);
  auto kernel = *test.module->getOps<tile::KernelOp>().begin();
  auto run = [&](Ids counts) {
    return interpretKernel(kernel,
                           {view(ids, {3, 1}), view(weights, {3, 1}),
                            view(counts, {2, 2}), view(offsets, {3}),
                            view(position, {3, 1}), view(source, {3}),
                            view(rowWeights, {3, 1})},
                           3);
  };
  EXPECT_TRUE(run({1, 1, 0, 1}));
  EXPECT_EQ(position, Ids({1, 0, 2}));
  moert::Status status = run({1, 1, 1, 0});
  EXPECT_FALSE(status);
  EXPECT_NE(status.message().find("counts differ from those"),
            std::string::npos);
}

TEST(GroupedMatmul, PairsRowsBySourceAndOrder) {
  Floats x = {1, 10, 2, 20};
  // Weight row n of group g gives (n + 1 + 10 g) times the input's sum.
  Floats w, b;
  for (int g = 0; g < 2; ++g)
    for (int n = 0; n < 4; ++n) {
      w.insert(w.end(), 2, n + 1 + 10.0f * g);
      b.push_back(g + n * 0.25f);
    }
  Ids offsets = {0, 1, 3}, source = {1, 0, 1};
  Floats row = {1000, 2000, 3000};
  auto expected = [&](auto gateRow, auto upRow) {
    Floats result;
    for (int p = 0; p < 3; ++p)
      for (int i = 0; i < 2; ++i) {
        int g = p == 0 ? 0 : 1;
        float sum = source[p] ? 22 : 11;
        auto product = [&](int n) {
          return (n + 1 + 10 * g) * sum + g + n * 0.25f;
        };
        result.push_back(100 * product(upRow(i)) + product(gateRow(i)) +
                         row[p]);
      }
    return result;
  };
  std::vector<TensorRef> inputs = {view(x, {2, 2}),    view(w, {2, 4, 2}),
                                   view(offsets, {3}), view(source, {3}),
                                   view(row, {3, 1}),  view(b, {2, 4})};
  auto run = [&](const char *order) {
    TestModule test(gated(order));
    auto out = test.run(inputs);
    return out.empty() ? Floats() : valuesOf<float>(out[0]);
  };
  EXPECT_EQ(run("gate_up"),
            expected([](int i) { return i; }, [](int i) { return i + 2; }));
  EXPECT_EQ(run("up_gate"),
            expected([](int i) { return i + 2; }, [](int i) { return i; }));
  EXPECT_EQ(run("interleaved"), expected([](int i) { return 2 * i; },
                                         [](int i) { return 2 * i + 1; }));
}

TEST(GroupedMatmul, NamesWrongIndices) {
  TestModule test(gated("gate_up"));
  Floats x(4), w(16), b(8), row(3);
  Ids offsets = {0, 1, 3}, source = {1, 2, 1};
  std::vector<TensorRef> inputs = {view(x, {2, 2}),    view(w, {2, 4, 2}),
                                   view(offsets, {3}), view(source, {3}),
                                   view(row, {3, 1}),  view(b, {2, 4})};
  EXPECT_EQ(test.failure(inputs), "@f: moe.grouped_matmul: position 1 reads "
                                  "row 2 of the input f32[2x2]");
  source = {1, 0, 1};
  offsets = {0, 2, 4};
  EXPECT_EQ(test.failure(inputs),
            "@f: moe.grouped_matmul: offsets[1] and [2] are 2 and 4, but "
            "there are 3 positions");
  inputs[0] = view(x, {1, 4});
  EXPECT_EQ(test.failure(inputs),
            "@f: argument 0 is f32[1x4], but its type says f32[?x2]");
}

TEST(GroupedMatmul, DenseRoundsOnceAndZerosPadding) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x3xbf16>, %w: tensor<1x3xbf16>,
                 %v: tensor<1xi32>, %a: tensor<?x1xbf16>) -> tensor<?x1xbf16> {
      %0 = moe.grouped_matmul %x, %w : tensor<?x3xbf16>, tensor<1x3xbf16>
        num_valid_tokens(%v : tensor<1xi32>)
        elementwise(%a : tensor<?x1xbf16>) epilogue {
        ^bb0(%s: f32, %e: f32):
          %1 = arith.addf %s, %e : f32
          moe.yield %1 : f32
        } -> tensor<?x1xbf16>
      return %0 : tensor<?x1xbf16>
    })");
  // 256 + 1 is a tie in bf16; the third product decides it upwards.
  std::vector<uint16_t> x = {bf16(256), bf16(1), bf16(0.5f),
                             bf16(1),   bf16(1), bf16(1)};
  std::vector<uint16_t> w(3, bf16(1)), addend = {bf16(0.25f), bf16(1)};
  Ids valid = {1};
  auto out = test.run({view(x, {2, 3}), view(w, {1, 3}), view(valid, {1}),
                       view(addend, {2, 1})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(valuesOf<uint16_t>(out[0]), std::vector<uint16_t>({bf16(258), 0}));
}

TEST(RowMap, WeighsRows) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x2xf32>, %r: tensor<?x1xf32>) -> tensor<?x2xf32> {
      %0 = moe.row_map %x : tensor<?x2xf32> rows(%r : tensor<?x1xf32>) {
        ^bb0(%a: f32, %w: f32):
          %1 = arith.mulf %a, %w : f32
          moe.yield %1 : f32
        } -> tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    })");
  Floats x = {1, 2, 3, 4}, r = {10, 100};
  auto out = test.run({view(x, {2, 2}), view(r, {2, 1})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(valuesOf<float>(out[0]), Floats({10, 20, 300, 400}));
}

TEST(Quantize, ScalesGroupsUpToTheLastOffset) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x130xf32>, %o: tensor<3xi32>)
        -> (tensor<?x130xf8E4M3FN>, tensor<?x2xf32>) {
      %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> %x offsets(%o : tensor<3xi32>) {top_k = 3 : i64}
        : tensor<?x130xf32> -> tensor<?x130xf8E4M3FN>, tensor<?x2xf32>
      return %q, %s : tensor<?x130xf8E4M3FN>, tensor<?x2xf32>
    })");
  // The first group's scale is 2, the second's that of zeros; NaN is in a
  // group of its own, and the last row behind the last offset.
  Floats x(3 * 130, 0);
  x[0] = -896;
  x[1] = 2 * 17; // Between 16 and 18: to the even code.
  x[130] = 448;
  x[130 + 129] = kNaN;
  Ids offsets = {0, 2, 2};
  auto out = test.run({view(x, {3, 130}), view(offsets, {3})});
  ASSERT_EQ(out.size(), 2u);
  auto rounded = valuesOf<uint8_t>(out[0]);
  Floats scales = valuesOf<float>(out[1]);
  EXPECT_EQ(rounded[0], 0xFE);
  EXPECT_EQ(rounded[1], 0x58);
  EXPECT_EQ(rounded[2], 0);
  EXPECT_EQ(rounded[130], 0x7E);
  EXPECT_EQ(rounded[130 + 128] & 0x7F, 0x7F);
  EXPECT_EQ(scales[0], 2);
  EXPECT_EQ(scales[1], 1e-10f / 448.0f);
  EXPECT_EQ(scales[2], 1);
  EXPECT_TRUE(std::isnan(scales[3]));
  // Unwritten: all bits are set.
  EXPECT_EQ(rounded[2 * 130], 0xFF);
  offsets = {0, 2, 4};
  EXPECT_NE(test.failure({view(x, {3, 130}), view(offsets, {3})})
                .find("the last of offsets is 4, but there are 3 positions"),
            std::string::npos);
}

/// Rows that are dequantized to bf16 are rounded to quantized values first.
TEST(Quantize, DequantizesRowsToBF16) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x4xf32>, %s: tensor<1xf32>)
        -> (tensor<?x4xbf16>, tensor<?x4xbf16>) {
      %e = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor, packing = bf16> %x tensor_scale(%s : tensor<1xf32>)
        : tensor<?x4xf32> -> tensor<?x4xbf16>
      %i = moe.quantize <storage = i8, scale = f32, granularity = tensor, packing = bf16> %x tensor_scale(%s : tensor<1xf32>)
        : tensor<?x4xf32> -> tensor<?x4xbf16>
      return %e, %i : tensor<?x4xbf16>, tensor<?x4xbf16>
    })");
  Floats x = {2 * 17, 2 * 3.5, -2000, kNaN}, scale = {2};
  auto out = test.run({view(x, {1, 4}), view(scale, {1})});
  ASSERT_EQ(out.size(), 2u);
  auto floats = valuesOf<uint16_t>(out[0]),
       integers = valuesOf<uint16_t>(out[1]);
  // 16, 3.5, -448; 17, 4, -127, 0.
  EXPECT_EQ(floats[0], 0x4180);
  EXPECT_EQ(floats[1], 0x4060);
  EXPECT_EQ(floats[2], 0xC3E0);
  EXPECT_GT(floats[3] & 0x7FFF, 0x7F80);
  EXPECT_EQ(integers[0], 0x4188);
  EXPECT_EQ(integers[1], 0x4080);
  EXPECT_EQ(integers[2], 0xC2FE);
  EXPECT_EQ(integers[3], 0);
}

/// With power-of-two scales the kept values include the scales of their groups.
TEST(Quantize, KeepsCodesTimesPowersOfTwo) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x40xf32>) -> tensor<?x40xbf16> {
      %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, packing = bf16, power_of_two = true> %x
        : tensor<?x40xf32> -> tensor<?x40xbf16>
      return %q : tensor<?x40xbf16>
    })");
  // Scales of 2 and 2^-7.
  Floats x(40, 0);
  x[0] = 500;
  x[1] = 2 * 17;
  x[32] = -3.5;
  x[33] = 17.0F / 128;
  auto out = test.run({view(x, {1, 40})});
  ASSERT_EQ(out.size(), 1u);
  auto numbers = valuesOf<uint16_t>(out[0]);
  // 512, 32, -3.5, 16 / 128.
  EXPECT_EQ(numbers[0], 0x4400);
  EXPECT_EQ(numbers[1], 0x4200);
  EXPECT_EQ(numbers[2], 0);
  EXPECT_EQ(numbers[32], 0xC060);
  EXPECT_EQ(numbers[33], 0x3E00);
}

TEST(GroupedMatmul, ScalesBlocks) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x129xf8E4M3FN>, %w: tensor<2x129xf8E4M3FN>,
                 %s: tensor<?x2xf32>, %t: tensor<2x2xf32>) -> tensor<?x1xf32> {
      %0 = moe.grouped_matmul %x, %w : tensor<?x129xf8E4M3FN>,
        tensor<2x129xf8E4M3FN> input_scale(%s : tensor<?x2xf32>) weight_scale(%t : tensor<2x2xf32>)
        epilogue {
        ^bb0(%g: f32, %u: f32):
          %c = arith.constant 1000.0 : f32
          %1 = arith.mulf %u, %c : f32
          %2 = arith.addf %1, %g : f32
          moe.yield %2 : f32
        } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>} -> tensor<?x1xf32>
      return %0 : tensor<?x1xf32>
    })");
  // All ones: 128 of them in the first block, 1 in the second. The up row has
  // the second row of scales.
  std::vector<uint8_t> x(129, 0x38), w(2 * 129, 0x38);
  Floats s = {2, 10}, t = {0.5, 3, 0.25, 7};
  auto rounded = [](std::vector<uint8_t> &values, int64_t rows) {
    TensorRef tensor;
    tensor.data = values.data();
    tensor.dtype = moert::DType::F8E4M3;
    tensor.shape = {rows, 129};
    return tensor;
  };
  auto out = test.run(
      {rounded(x, 1), rounded(w, 2), view(s, {1, 2}), view(t, {2, 2})});
  ASSERT_EQ(out.size(), 1u);
  float gate = 128 * 2 * 0.5f + 10 * 3, up = 128 * 2 * 0.25f + 10 * 7;
  EXPECT_EQ(valuesOf<float>(out[0]), Floats({gate + 1000 * up}));
}

static TensorRef bytesOf(std::vector<uint8_t> &values, moert::DType dtype,
                         llvm::ArrayRef<int64_t> shape) {
  TensorRef tensor;
  tensor.data = values.data();
  tensor.dtype = dtype;
  tensor.shape.assign(shape.begin(), shape.end());
  return tensor;
}

// field-bug: Model-Optimizer#1411, TensorRT-LLM#14199, vllm#54974, vllm#56095
// field-bug: vllm#34675
TEST(GroupedMatmul, ReadsPairsWithGlobalScales) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x16xf32>, %w: tensor<2x8xi8>,
                 %s: tensor<2x1xf8E8M0FNU>, %g: tensor<2xf32>) -> tensor<?x1xf32> {
      %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<2x8xi8>
        weight_scale(%s : tensor<2x1xf8E8M0FNU>) weight_global_scale(%g : tensor<2xf32>)
        epilogue {
        ^bb0(%a: f32, %b: f32):
          %c = arith.constant 1000.0 : f32
          %1 = arith.mulf %b, %c : f32
          %2 = arith.addf %1, %a : f32
          moe.yield %2 : f32
        } {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>, layout = #moe.weight_layout<order = up_gate>} -> tensor<?x1xf32>
      return %0 : tensor<?x1xf32>
    })");
  // Up 0.5 and -6, gate 1.5 of the second element alone.
  std::vector<uint8_t> w(16, 0), s = {128, 126};
  w[0] = 0xF1;
  w[8] = 0x30;
  Floats x(16, 0), g = {3, 5};
  x[0] = 1;
  x[1] = 2;
  auto out = test.run({view(x, {1, 16}), bytesOf(w, moert::DType::I8, {2, 8}),
                       bytesOf(s, moert::DType::F8E8M0, {2, 1}), view(g, {2})});
  ASSERT_EQ(out.size(), 1u);
  float up = (0.5f - 12) * 2 * 3, gate = 3 * 0.5f * 5;
  EXPECT_EQ(valuesOf<float>(out[0]), Floats({gate + 1000 * up}));
}

TEST(GroupedMatmul, TakesZeroPointsOff) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x4xf32>, %w: tensor<2x4xi8>, %s: tensor<2x2xf32>,
                 %z: tensor<2x2xi8>, %v: tensor<2x2xi8>, %t: tensor<2x1xf32>)
        -> (tensor<?x2xf32>, tensor<?x2xf32>) {
      %0 = moe.grouped_matmul %x, %w : tensor<?x4xf32>, tensor<2x4xi8>
        weight_scale(%s : tensor<2x2xf32>) weight_zero_point(%z : tensor<2x2xi8>)
        {weight_quant = #moe.quant<storage = i8, scale = f32, granularity = group, block = [1, 2], zero_point = true>} -> tensor<?x2xf32>
      %1 = moe.grouped_matmul %x, %v : tensor<?x4xf32>, tensor<2x2xi8>
        weight_scale(%t : tensor<2x1xf32>)
        {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>} -> tensor<?x2xf32>
      return %0, %1 : tensor<?x2xf32>, tensor<?x2xf32>
    })");
  std::vector<uint8_t> w = {255, 1, 3, 4, 0, 128, 7, 7}, z = {200, 2, 1, 255},
                       v = {0xF0, 0x98, 0x88, 0x87};
  Floats x = {1, 2, 4, 8}, s = {1, 0.5, 2, 0.25}, t = {2, 0.5};
  auto out = test.run({view(x, {1, 4}), bytesOf(w, moert::DType::I8, {2, 4}),
                       view(s, {2, 2}), bytesOf(z, moert::DType::I8, {2, 2}),
                       bytesOf(v, moert::DType::I8, {2, 2}), view(t, {2, 1})});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(valuesOf<float>(out[0]),
            Floats({(55 - 2 * 199) + 0.5f * (4 + 16),
                    2 * (-1.0f + 2 * 127) + 0.25f * (4 * -248 + 8 * -248)}));
  EXPECT_EQ(valuesOf<float>(out[1]), Floats({2 * (-8.0f + 14 + 8), 0.5f * -4}));
}

TEST(Unpermute, SumsInOrderWithIdentityAndAddend) {
  TestModule test(R"(
    func.func @f(%y: tensor<?x1xf32>, %p: tensor<?x3xi32>, %i: tensor<?x1xf32>,
                 %w: tensor<?x3xf32>, %a: tensor<?x1xf32>, %v: tensor<1xi32>)
        -> tensor<?x1xf32> {
      %0 = moe.unpermute %y, %p : tensor<?x1xf32>, tensor<?x3xi32>
        identity(%i, %w : tensor<?x1xf32>, tensor<?x3xf32>)
        addend(%a : tensor<?x1xf32>) num_valid_tokens(%v : tensor<1xi32>)
        -> tensor<?x1xf32>
      return %0 : tensor<?x1xf32>
    })");
  // f32 in order of j: (2^24 + 1) + 1 loses both ones. NaN of a slot that is
  // left out stays out.
  Floats y = {16777216, 1, 1, kNaN};
  Ids position = {0, 1, 2, 1, -2, -1, 3, 3, 3};
  Floats identity = {0, 5, 0}, weights = {0, 0, 0, 0, 2, kNaN, 0, 0, 0};
  Floats addend = {0, 0.5f, 1};
  Ids valid = {2};
  std::vector<TensorRef> inputs = {
      view(y, {4, 1}),       view(position, {3, 3}), view(identity, {3, 1}),
      view(weights, {3, 3}), view(addend, {3, 1}),   view(valid, {1})};
  auto out = test.run(inputs);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(valuesOf<float>(out[0]), Floats({16777216, 11.5f, 0}));
  position[1] = 4;
  EXPECT_EQ(test.failure(inputs),
            "@f: moe.unpermute: position[0, 1] is 4, but there are 4 rows");
}

TEST(Unpermute, KeepsRowsOfSlotsAndAddsThemLater) {
  TestModule keep(R"(
    func.func @f(%y: tensor<?x2xf32>, %p: tensor<?x2xi32>, %v: tensor<1xi32>)
        -> tensor<?x4xf32> {
      %0 = moe.unpermute unreduced %y, %p : tensor<?x2xf32>, tensor<?x2xi32>
        num_valid_tokens(%v : tensor<1xi32>) -> tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    })");
  Floats y = {1, 2, 3, 4, kNaN, kNaN};
  Ids position = {1, 0, -1, 1, 2, 2};
  Ids valid = {2};
  std::vector<TensorRef> inputs = {view(y, {3, 2}), view(position, {3, 2}),
                                   view(valid, {1})};
  auto slots = keep.run(inputs);
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(valuesOf<float>(slots[0]),
            Floats({3, 4, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0}));
  position[0] = 3;
  EXPECT_EQ(keep.failure(inputs),
            "@f: moe.unpermute: position 3 is not one of the 3 rows");

  TestModule add(R"(
    func.func @f(%y: tensor<?x4xf32>, %p: tensor<?x2xi32>, %a: tensor<?x2xf32>)
        -> tensor<?x2xf32> {
      %0 = moe.unpermute from_unreduced %y, %p
        : tensor<?x4xf32>, tensor<?x2xi32> addend(%a : tensor<?x2xf32>)
        -> tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    })");
  // Ids of any size say which slots count.
  Floats kept = {3, 4, 1, 2, kNaN, kNaN, 3, 4};
  Ids ids = {100, 7, -1, 5};
  Floats addend = {10, 20, 30, 40};
  auto sums =
      add.run({view(kept, {2, 4}), view(ids, {2, 2}), view(addend, {2, 2})});
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(valuesOf<float>(sums[0]), Floats({14, 26, 33, 44}));
}

TEST(Function, NamesAnOpThatDoesNotRun) {
  TestModule test(R"(
    func.func @f(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      %0 = arith.addf %x, %x : tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    })");
  Floats x(2);
  EXPECT_EQ(test.failure({view(x, {1, 2})}).find("@f: arith.addf: "), 0u);
  EXPECT_EQ(test.failure({}), "@f: it takes 1 tensors, 0 were given");
}

TEST(Function, RefusesATensorConstant) {
  TestModule test(R"(
    func.func @f() -> tensor<2xf32> {
      %0 = arith.constant dense<1.0> : tensor<2xf32>
      return %0 : tensor<2xf32>
    })");
  EXPECT_EQ(test.failure({}).find("@f: arith.constant: "), 0u);
}

TEST(Function, ALayerOfRealSizeTakesSeconds) {
  // 16 tokens of 8 slots through the two products of 16 experts.
  TestModule test(R"(
    func.func @f(%x: tensor<?x2048xbf16>, %w13: tensor<16x1536x2048xbf16>,
                 %w2: tensor<16x2048x768xbf16>, %o: tensor<17xi32>,
                 %s: tensor<?xi32>) -> tensor<?x2048xbf16> {
      %0 = moe.grouped_matmul %x, %w13
        : tensor<?x2048xbf16>, tensor<16x1536x2048xbf16>
        offsets(%o : tensor<17xi32>) source(%s : tensor<?xi32>) epilogue {
        ^bb0(%g: f32, %u: f32):
          %1 = arith.mulf %g, %u : f32
          moe.yield %1 : f32
        } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x768xbf16>
      %2 = moe.grouped_matmul %0, %w2
        : tensor<?x768xbf16>, tensor<16x2048x768xbf16>
        offsets(%o : tensor<17xi32>) -> tensor<?x2048xbf16>
      return %2 : tensor<?x2048xbf16>
    })");
  std::vector<uint16_t> x(16 * 2048, bf16(0.5f));
  std::vector<uint16_t> w13(16 * 1536 * 2048, bf16(0.03125f));
  std::vector<uint16_t> w2(16 * 2048 * 768, bf16(0.0078125f));
  Ids offsets, source;
  for (int g = 0; g <= 16; ++g)
    offsets.push_back(g * 8);
  for (int p = 0; p < 128; ++p)
    source.push_back(p % 16);
  auto start = std::chrono::steady_clock::now();
  auto out = test.run({view(x, {16, 2048}), view(w13, {16, 1536, 2048}),
                       view(w2, {16, 2048, 768}), view(offsets, {17}),
                       view(source, {128})});
  std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(elapsed.count()));
  ASSERT_EQ(out.size(), 1u);
  // 32 * 32 * 768 / 128.
  EXPECT_EQ(valuesOf<uint16_t>(out[0])[128 * 2048 - 1], bf16(6144));
}
