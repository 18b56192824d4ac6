//===- InterpreterDeviceTest.cpp - kernels under the executor ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/InterpreterDevice.h"
#include "TestModule.h"
#include "moert/Executor.h"

#include <cmath>
#include <cstring>

using namespace moec;
using namespace moec::interpreter;

namespace {

using Ids = std::vector<int32_t>;
using Floats = std::vector<float>;

const char *const kProgram = R"(
  plan.program @layer max_tokens 8 {
    %i = plan.tensor input "topk_ids" rows <"tokens">
      : memref<?x2xi32>
    %w = plan.tensor input "topk_weights" rows <"tokens">
      : memref<?x2xf32>
    %o = plan.tensor output "expert_offsets" : memref<4xi32>
    %p = plan.tensor output "position" rows <"tokens">
      : memref<?x2xi32>
    %s = plan.tensor output "source" rows <"tokens * 2">
      : memref<?xi32>
    %r = plan.tensor output "row_weight" rows <"tokens * 2">
      : memref<?x1xf32>
    plan.prepare { }
    plan.variant tokens 0 to 8 {
      plan.launch @permute ins(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
        outs(%o, %p, %s, %r : memref<4xi32>, memref<?x2xi32>, memref<?xi32>,
             memref<?x1xf32>)
    }
  })";

const char *const kPlanKernel = R"(
  plan.kernel @permute(%i: tensor<?x2xi32>, %w: tensor<?x2xf32>)
      -> (tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>) {
    %o, %p, %s, %r = moe.permute %i, %w {num_experts = 3 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32>
      -> tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
    plan.return %o, %p, %s, %r
      : tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  })";

const char *const kTileKernel = R"(
  tile.kernel @permute(%i: memref<?x2xi32>, %w: memref<?x2xf32>,
      %o: memref<4xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
      %r: memref<?x1xf32>, %t: i64) {
    tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<4xi32>, memref<?x2xi32>, memref<?xi32>,
           memref<?x1xf32>) {num_experts = 3 : i64}
    tile.return
  })";

/// Adds a tensor to the plan.
auto addTo(moert::Plan &plan) {
  return [&plan](const char *name, moert::DType dtype,
                 std::vector<moert::Expr> shape, moert::TensorRole role) {
    moert::TensorDecl decl;
    decl.name = name;
    decl.dtype = dtype;
    decl.shape = std::move(shape);
    decl.role = role;
    plan.tensors.push_back(decl);
  };
}

/// The plan of kProgram.
moert::Plan permutePlan() {
  moert::Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 8;
  moert::Expr tokens = moert::Expr::tokens();
  auto add = addTo(plan);
  using moert::DType;
  using moert::TensorRole;
  add("topk_ids", DType::I32, {tokens, 2}, TensorRole::Input);
  add("topk_weights", DType::F32, {tokens, 2}, TensorRole::Input);
  add("expert_offsets", DType::I32, {4}, TensorRole::Output);
  add("position", DType::I32, {tokens, 2}, TensorRole::Output);
  add("source", DType::I32, {tokens * 2}, TensorRole::Output);
  add("row_weight", DType::F32, {tokens * 2, 1}, TensorRole::Output);
  plan.kernels.push_back({"permute", 1});
  std::vector<moert::Argument> args;
  for (int64_t i = 0; i < 6; ++i)
    args.push_back(moert::Argument::ofTensor(i));
  args.push_back(moert::Argument::ofTokens());
  plan.variants.push_back({0, 8, {moert::Step::launch(0, args)}});
  return plan;
}

moert::TensorView executorView(std::vector<float> &values,
                               std::vector<int64_t> shape) {
  return {values.data(), moert::DType::F32, std::move(shape), {}};
}

moert::TensorView executorView(std::vector<int32_t> &values,
                               std::vector<int64_t> shape) {
  return {values.data(), moert::DType::I32, std::move(shape), {}};
}

void runProgram(const char *kernel) {
  TestModule test(std::string(kProgram) + kernel);
  auto device = createInterpreterDevice(*test.module);
  ASSERT_TRUE(device.isOk()) << device.status().message();
  auto executor =
      moert::Executor::create(permutePlan(), **device, moert::ModuleImage());
  ASSERT_TRUE(executor.isOk()) << executor.status().message();
  Ids ids = {1, 0, 2, 1, -1, 0}, offsets(4), position(6), source(6);
  Floats weights = {1, 2, 3, 4, 5, 6}, rowWeight(6);
  moert::Executor &run = **executor;
  for (moert::Status status :
       {run.bind("topk_ids", executorView(ids, {3, 2})),
        run.bind("topk_weights", executorView(weights, {3, 2})),
        run.bind("expert_offsets", executorView(offsets, {4})),
        run.bind("position", executorView(position, {3, 2})),
        run.bind("source", executorView(source, {6})),
        run.bind("row_weight", executorView(rowWeight, {6, 1})), run.run(3),
        run.synchronize()})
    ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(offsets, Ids({0, 2, 4, 5}));
  EXPECT_EQ(position, Ids({2, 0, 4, 3, -1, 1}));
  source.resize(5);
  rowWeight.resize(5);
  EXPECT_EQ(source, Ids({0, 2, 0, 1, 1}));
  EXPECT_EQ(rowWeight, Floats({2, 6, 1, 4, 3}));
  EXPECT_TRUE(run.run(0).isOk());
  EXPECT_EQ(offsets, Ids({0, 0, 0, 0}));
}

} // namespace

TEST(InterpreterDevice, RunsPlanKernels) { runProgram(kPlanKernel); }

TEST(InterpreterDevice, RunsTileKernels) { runProgram(kTileKernel); }

namespace {

/// Quantized values and scales of three rows, some of which `offsets` assign to
/// two groups with equal weights; results overwrite their buffers.
struct QuantizedRows {
  std::vector<uint8_t> rounded = {1, 2, 3, 4, 5, 6};
  Floats scales = {0, 0, 0};

  /// Runs a product with these attributes, of rows 1, 2 and 4.
  void run(const std::string &attributes, Ids offsets);
};

void QuantizedRows::run(const std::string &attributes, Ids offsets) {
  TestModule test(R"(
    plan.program @layer max_tokens 8 {
      %x = plan.tensor input "x" rows <"tokens"> : memref<?x1xf32>
      %w = plan.tensor input "w" : memref<2x2x1xf32>
      %o = plan.tensor input "o" : memref<3xi32>
      %q = plan.tensor output "q" rows <"tokens"> : memref<?x2xf8E4M3FN>
      %s = plan.tensor output "s" rows <"tokens"> : memref<?x1xf32>
      plan.variant tokens 0 to 8 {
        plan.launch @product ins(%x, %w, %o : memref<?x1xf32>,
            memref<2x2x1xf32>, memref<3xi32>)
          outs(%q, %s : memref<?x2xf8E4M3FN>, memref<?x1xf32>)
      }
    }
    tile.kernel @product(%x: memref<?x1xf32>, %w: memref<2x2x1xf32>,
        %o: memref<3xi32>, %q: memref<?x2xf8E4M3FN>, %s: memref<?x1xf32>,
        %t: i64) {
      tile.gemm tokens(%t) ins(%x, %w : memref<?x1xf32>, memref<2x2x1xf32>)
        offsets(%o : memref<3xi32>) outs(%q : memref<?x2xf8E4M3FN>)
        result_scale(%s : memref<?x1xf32>) {result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16)" +
                  attributes + R"(}
      tile.return
    })");
  auto device = createInterpreterDevice(*test.module);
  ASSERT_TRUE(device.isOk()) << device.status().message();
  moert::Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 8;
  using moert::DType;
  using moert::TensorRole;
  moert::Expr tokens = moert::Expr::tokens();
  auto add = addTo(plan);
  add("x", DType::F32, {tokens, 1}, TensorRole::Input);
  add("w", DType::F32, {2, 2, 1}, TensorRole::Input);
  add("o", DType::I32, {3}, TensorRole::Input);
  add("q", DType::F8E4M3, {tokens, 2}, TensorRole::Output);
  add("s", DType::F32, {tokens, 1}, TensorRole::Output);
  plan.kernels.push_back({"product", 1});
  std::vector<moert::Argument> args;
  for (int64_t i = 0; i < 5; ++i)
    args.push_back(moert::Argument::ofTensor(i));
  args.push_back(moert::Argument::ofTokens());
  plan.variants.push_back({0, 8, {moert::Step::launch(0, args)}});
  auto executor = moert::Executor::create(plan, **device, moert::ModuleImage());
  ASSERT_TRUE(executor.isOk()) << executor.status().message();
  Floats x = {1, 2, 4}, w = {-896, 34.1f, -896, 34.1f};
  moert::Executor &run = **executor;
  for (moert::Status status :
       {run.bind("x", executorView(x, {3, 1})),
        run.bind("w", executorView(w, {2, 2, 1})),
        run.bind("o", executorView(offsets, {3})),
        run.bind("q", {rounded.data(), DType::F8E4M3, {3, 2}, {}}),
        run.bind("s", executorView(scales, {3, 1})), run.run(3),
        run.synchronize()})
    ASSERT_TRUE(status.isOk()) << status.message();
}

} // namespace

/// Values are rounded to bf16 before quantization: 34.1 to 34, half of which is
/// halfway between two quantized values.
TEST(InterpreterDevice, QuantizesResults) {
  QuantizedRows rows;
  rows.run("", {0, 1, 1});
  // Nothing is written behind the last offset.
  EXPECT_EQ(rows.rounded, std::vector<uint8_t>({0xFE, 0x58, 3, 4, 5, 6}));
  EXPECT_EQ(rows.scales, Floats({2, 0, 0}));
}

/// Each gemm writes the rows that the other leaves unchanged.
TEST(InterpreterDevice, TakesGroupsByTheirRows) {
  QuantizedRows rows;
  rows.run(", group_rows = #tile.group_rows<min = 2>", {0, 1, 3});
  EXPECT_EQ(rows.rounded, std::vector<uint8_t>({1, 2, 0xFE, 0x58, 0xFE, 0x58}));
  EXPECT_EQ(rows.scales, Floats({0, 4, 8}));
  rows.run(", group_rows = #tile.group_rows<max = 1>", {0, 1, 3});
  EXPECT_EQ(rows.rounded,
            std::vector<uint8_t>({0xFE, 0x58, 0xFE, 0x58, 0xFE, 0x58}));
  EXPECT_EQ(rows.scales, Floats({2, 4, 8}));
  QuantizedRows others;
  others.run(", group_rows = #tile.group_rows<min = 3>", {0, 1, 3});
  EXPECT_EQ(others.rounded, std::vector<uint8_t>({1, 2, 3, 4, 5, 6}));
}

namespace {

/// Rows of f32 and quantized values of e4m3, brought into the order of two
/// groups.
struct GatherTest {
  Ids offsets = {0, 1, 3}, source = {2, 0, 2, 1, 7, 7};
  Floats rows = {1, 2, 3, 4, 5, 6}, ordered = Floats(12, -1);
  std::vector<uint8_t> rounded = {0x7F, 0x01, 0xFE},
                       orderedCodes = std::vector<uint8_t>(6, 9);

  /// The message of the failure; empty if there is none.
  std::string run() {
    TestModule test(R"(
      plan.program @layer max_tokens 8 {
        %x = plan.tensor input "x" rows <"tokens"> : memref<?x2xf32>
        %c = plan.tensor input "c" rows <"tokens"> : memref<?x1xf8E4M3FN>
        %o = plan.tensor input "o" : memref<3xi32>
        %s = plan.tensor input "s" rows <"tokens * 2"> : memref<?xi32>
        %y = plan.tensor output "y" rows <"tokens * 2"> : memref<?x2xf32>
        %d = plan.tensor output "d" rows <"tokens * 2"> : memref<?x1xf8E4M3FN>
        plan.variant tokens 0 to 8 {
          plan.launch @gather ins(%x, %c, %o, %s : memref<?x2xf32>,
              memref<?x1xf8E4M3FN>, memref<3xi32>, memref<?xi32>)
            outs(%y, %d : memref<?x2xf32>, memref<?x1xf8E4M3FN>)
        }
      }
      tile.kernel @gather(%x: memref<?x2xf32>, %c: memref<?x1xf8E4M3FN>,
          %o: memref<3xi32>, %s: memref<?xi32>, %y: memref<?x2xf32>,
          %d: memref<?x1xf8E4M3FN>, %t: i64) {
        tile.gather_rows tokens(%t)
          ins(%x, %c : memref<?x2xf32>, memref<?x1xf8E4M3FN>)
          offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
          outs(%y, %d : memref<?x2xf32>, memref<?x1xf8E4M3FN>) {top_k = 2 : i64}
        tile.return
      })");
    auto device = createInterpreterDevice(*test.module);
    EXPECT_TRUE(device.isOk()) << device.status().message();
    using moert::DType;
    using moert::TensorRole;
    moert::Plan plan;
    plan.target = "cpu";
    plan.maxTokens = 8;
    moert::Expr tokens = moert::Expr::tokens();
    auto add = addTo(plan);
    add("x", DType::F32, {tokens, 2}, TensorRole::Input);
    add("c", DType::F8E4M3, {tokens, 1}, TensorRole::Input);
    add("o", DType::I32, {3}, TensorRole::Input);
    add("s", DType::I32, {tokens * 2}, TensorRole::Input);
    add("y", DType::F32, {tokens * 2, 2}, TensorRole::Output);
    add("d", DType::F8E4M3, {tokens * 2, 1}, TensorRole::Output);
    plan.kernels.push_back({"gather", 1});
    std::vector<moert::Argument> args;
    for (int64_t i = 0; i < 6; ++i)
      args.push_back(moert::Argument::ofTensor(i));
    args.push_back(moert::Argument::ofTokens());
    plan.variants.push_back({0, 8, {moert::Step::launch(0, args)}});
    auto executor =
        moert::Executor::create(plan, **device, moert::ModuleImage());
    EXPECT_TRUE(executor.isOk()) << executor.status().message();
    moert::Executor &run = **executor;
    for (moert::Status status :
         {run.bind("x", executorView(rows, {3, 2})),
          run.bind("c", {rounded.data(), DType::F8E4M3, {3, 1}, {}}),
          run.bind("o", executorView(offsets, {3})),
          run.bind("s", executorView(source, {6})),
          run.bind("y", executorView(ordered, {6, 2})),
          run.bind("d", {orderedCodes.data(), DType::F8E4M3, {6, 1}, {}})})
      EXPECT_TRUE(status.isOk()) << status.message();
    for (moert::Status status : {run.run(3), run.synchronize()})
      if (!status.isOk())
        return status.message();
    return {};
  }
};

} // namespace

/// As many rows as the last offset; sources behind it do not matter.
TEST(InterpreterDevice, GathersRows) {
  GatherTest test;
  EXPECT_EQ(test.run(), "");
  EXPECT_EQ(test.ordered, Floats({5, 6, 1, 2, 5, 6, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(test.orderedCodes,
            std::vector<uint8_t>({0xFE, 0x7F, 0xFE, 9, 9, 9}));
  GatherTest none;
  none.offsets = {0, 0, 0};
  none.source = {7, 7, 7, 7, 7, 7};
  EXPECT_EQ(none.run(), "");
  EXPECT_EQ(none.ordered, Floats(12, -1));
}

TEST(InterpreterDevice, GathersNoRowsThatAreNotThere) {
  auto failureWith = [](Ids offsets, Ids source) {
    GatherTest test;
    test.offsets = std::move(offsets);
    test.source = std::move(source);
    return test.run();
  };
  for (auto [last, text] : {std::pair(7, "7"), std::pair(-1, "-1")})
    EXPECT_NE(failureWith({0, 1, last}, {0, 0, 0, 0, 0, 0})
                  .find("the last of offsets is " + std::string(text) +
                        ", but there are 6 positions"),
              std::string::npos);
  for (auto [source, text] : {std::pair(3, "3"), std::pair(-1, "-1")})
    EXPECT_NE(failureWith({0, 1, 3}, {0, source, 0, 0, 0, 0})
                  .find("source[1] is " + std::string(text) +
                        ", but there are 3 rows"),
              std::string::npos);
}

TEST(InterpreterDevice, NamesWhatIsMissing) {
  auto failureWith = [](const std::string &text) {
    TestModule test(text);
    auto device = createInterpreterDevice(*test.module);
    EXPECT_TRUE(device.isOk());
    auto module = (*device)->loadModule(moert::ModuleImage());
    EXPECT_TRUE(module.isOk());
    return (*module)->kernel("permute").status().message();
  };
  EXPECT_NE(failureWith("").find("not a plan.kernel or tile.kernel"),
            std::string::npos);
  EXPECT_NE(failureWith(kTileKernel).find("no plan.launch names the kernel"),
            std::string::npos);
}

/// A gemm that quantizes its rows computes what a quantization and a gemm do,
/// also of rows of zeros and of rows with a NaN or an infinity.
TEST(InterpreterDevice, QuantizesRows) {
  const std::string quants =
      R"(input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
         weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>)";
  TestModule test(R"(
    tile.kernel @quantize(%x: memref<?x2xbf16>, %q: memref<?x2xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
      tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
        tokens(%t) ins(%x : memref<?x2xbf16>) outs(%q, %s : memref<?x2xf8E4M3FN>, memref<?x1xf32>)
      tile.return
    }
    tile.kernel @product(%q: memref<?x2xf8E4M3FN>, %s: memref<?x1xf32>, %w: memref<2x2xf8E4M3FN>,
        %b: memref<1x1xf32>, %y: memref<?x2xf32>, %t: i64) {
      tile.gemm tokens(%t) ins(%q, %w : memref<?x2xf8E4M3FN>, memref<2x2xf8E4M3FN>)
        input_scale(%s : memref<?x1xf32>) weight_scale(%b : memref<1x1xf32>)
        outs(%y : memref<?x2xf32>) {)" +
                  quants + R"(}
      tile.return
    }
    tile.kernel @both(%x: memref<?x2xbf16>, %w: memref<2x2xf8E4M3FN>, %b: memref<1x1xf32>,
        %z: memref<?x2xf32>, %t: i64) {
      tile.gemm tokens(%t) ins(%x, %w : memref<?x2xbf16>, memref<2x2xf8E4M3FN>)
        weight_scale(%b : memref<1x1xf32>) outs(%z : memref<?x2xf32>) {quantizes_input, )" +
                  quants + R"(}
      tile.return
    }
    plan.program @layer max_tokens 8 {
      %x = plan.tensor input "x" rows <"tokens"> : memref<?x2xbf16>
      %w = plan.tensor input "w" : memref<2x2xf8E4M3FN>
      %b = plan.tensor input "b" : memref<1x1xf32>
      %q = plan.tensor output "q" rows <"tokens"> : memref<?x2xf8E4M3FN>
      %s = plan.tensor output "s" rows <"tokens"> : memref<?x1xf32>
      %y = plan.tensor output "y" rows <"tokens"> : memref<?x2xf32>
      %z = plan.tensor output "z" rows <"tokens"> : memref<?x2xf32>
      plan.variant tokens 0 to 8 {
        plan.launch @quantize ins(%x : memref<?x2xbf16>) outs(%q, %s : memref<?x2xf8E4M3FN>, memref<?x1xf32>)
        plan.launch @product ins(%q, %s, %w, %b : memref<?x2xf8E4M3FN>, memref<?x1xf32>, memref<2x2xf8E4M3FN>,
            memref<1x1xf32>) outs(%y : memref<?x2xf32>)
        plan.launch @both ins(%x, %w, %b : memref<?x2xbf16>, memref<2x2xf8E4M3FN>, memref<1x1xf32>)
          outs(%z : memref<?x2xf32>)
      }
    })");
  auto device = createInterpreterDevice(*test.module);
  ASSERT_TRUE(device.isOk()) << device.status().message();
  moert::Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 8;
  using moert::DType;
  using moert::TensorRole;
  moert::Expr tokens = moert::Expr::tokens();
  auto add = addTo(plan);
  add("x", DType::BF16, {tokens, 2}, TensorRole::Input);
  add("w", DType::F8E4M3, {2, 2}, TensorRole::Input);
  add("b", DType::F32, {1, 1}, TensorRole::Input);
  add("q", DType::F8E4M3, {tokens, 2}, TensorRole::Output);
  add("s", DType::F32, {tokens, 1}, TensorRole::Output);
  add("y", DType::F32, {tokens, 2}, TensorRole::Output);
  add("z", DType::F32, {tokens, 2}, TensorRole::Output);
  std::vector<moert::Step> steps;
  auto launch = [&](const char *name, std::vector<int64_t> tensors) {
    std::vector<moert::Argument> args;
    for (int64_t tensor : tensors)
      args.push_back(moert::Argument::ofTensor(tensor));
    args.push_back(moert::Argument::ofTokens());
    steps.push_back(moert::Step::launch(int64_t(plan.kernels.size()), args));
    plan.kernels.push_back({name, 1});
  };
  launch("quantize", {0, 3, 4});
  launch("product", {3, 4, 1, 2, 5});
  launch("both", {0, 1, 2, 6});
  plan.variants.push_back({0, 8, steps});
  auto executor = moert::Executor::create(plan, **device, moert::ModuleImage());
  ASSERT_TRUE(executor.isOk()) << executor.status().message();
  // 2 and 448, zeros, a NaN and 1, an infinity and -1.
  std::vector<uint16_t> x = {0x4000, 0x43E0, 0,      0,
                             0x7FC0, 0x3F80, 0x7F80, 0xBF80};
  std::vector<uint8_t> w = {0x38, 0, 0, 0x38}, q(8);
  Floats b = {1}, s(4), y(8), z(8, 7);
  moert::Executor &run = **executor;
  for (moert::Status status :
       {run.bind("x", {x.data(), DType::BF16, {4, 2}, {}}),
        run.bind("w", {w.data(), DType::F8E4M3, {2, 2}, {}}),
        run.bind("b", executorView(b, {1, 1})),
        run.bind("q", {q.data(), DType::F8E4M3, {4, 2}, {}}),
        run.bind("s", executorView(s, {4, 1})),
        run.bind("y", executorView(y, {4, 2})),
        run.bind("z", executorView(z, {4, 2})), run.run(4), run.synchronize()})
    ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(0, std::memcmp(y.data(), z.data(), y.size() * sizeof(float)));
  EXPECT_EQ(Floats(z.begin(), z.begin() + 4), Floats({2, 448, 0, 0}));
  EXPECT_TRUE(std::isnan(z[4]) && std::isnan(z[6]));
}
