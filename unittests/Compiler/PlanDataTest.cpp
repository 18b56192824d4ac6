//===- PlanDataTest.cpp - a plan.program as the runtime's data --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/PlanData.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr llvm::StringLiteral kProgram = R"mlir(
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xbf16>
  %w = plan.tensor weight "w" : memref<8x8xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 1 rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" slot 0 rows <"tokens * 2"> : memref<?xi32>
  plan.prepare {
  }
  plan.variant tokens 0 to 3 {
    plan.launch @product ins(%x, %w : memref<?x8xbf16>, memref<8x8xbf16>) outs(%a : memref<?x8xf32>)
    plan.launch @copy ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  plan.variant tokens 4 to 8 {
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @product stream 1 ins(%x, %w : memref<?x8xbf16>, memref<8x8xbf16>) outs(%a : memref<?x8xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    plan.launch @copy ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
)mlir";

constexpr llvm::StringLiteral kTileKernels = R"mlir(
tile.kernel @product(%x: memref<?x8xbf16>, %w: memref<8x8xbf16>, %y: memref<?x8xf32>, %t: i64)
    attributes {grid = #plan.expr<"ceildiv(tokens, 4)">, form = #tile.kernel_form<resident = true>
} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xbf16>, memref<8x8xbf16>) outs(%y : memref<?x8xf32>)
    {config = #tile.cpu_gemm}
  tile.return
}
tile.kernel @copy(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  }
  tile.return
}
)mlir";

std::string withProgram(llvm::StringRef kernels) {
  return (kProgram + kernels).str();
}

TEST(PlanDataTest, TranslatesEveryPart) {
  ParsedModule parsed(withProgram(kTileKernels));
  ASSERT_TRUE(parsed.module);
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "cpu");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  EXPECT_EQ(plan->target, "cpu");
  EXPECT_EQ(plan->maxTokens, 8);
  EXPECT_EQ(plan->numSlots, 2);
  EXPECT_EQ(plan->numStreams, 2);
  EXPECT_EQ(plan->numEvents, 2);
  EXPECT_TRUE(plan->prepare.empty());

  ASSERT_EQ(plan->tensors.size(), 5u);
  EXPECT_EQ(plan->tensors[0].name, "x");
  EXPECT_EQ(plan->tensors[0].role, moert::TensorRole::Input);
  EXPECT_EQ(plan->tensors[0].dtype, moert::DType::BF16);
  ASSERT_EQ(plan->tensors[0].shape.size(), 2u);
  EXPECT_EQ(plan->tensors[0].shape[0], moert::Expr::tokens());
  EXPECT_EQ(plan->tensors[0].shape[1], moert::Expr(8));
  EXPECT_EQ(plan->tensors[1].role, moert::TensorRole::Weight);
  EXPECT_EQ(plan->tensors[2].role, moert::TensorRole::Output);
  EXPECT_EQ(plan->tensors[3].role, moert::TensorRole::Workspace);
  EXPECT_EQ(plan->tensors[3].slot, 1);
  EXPECT_EQ(plan->tensors[4].dtype, moert::DType::I32);
  EXPECT_EQ(plan->tensors[4].shape[0].str(), "tokens * 2");

  ASSERT_EQ(plan->variants.size(), 2u);
  EXPECT_EQ(plan->variants[0].maxTokens, 3);
  EXPECT_EQ(plan->variants[1].minTokens, 4);
  ASSERT_EQ(plan->kernels.size(), 2u);
  EXPECT_EQ(plan->kernels[0].name, "product");
  EXPECT_EQ(plan->kernels[0].grid.str(), "ceildiv(tokens, 4)");
  EXPECT_TRUE(plan->kernels[0].resident);
  EXPECT_EQ(plan->kernels[1].name, "copy");
  EXPECT_EQ(plan->kernels[1].grid, moert::Expr(1));
  EXPECT_FALSE(plan->kernels[1].resident);

  const moert::Step &launch = plan->variants[1].steps[2];
  EXPECT_EQ(launch.kind, moert::Step::Kind::Launch);
  EXPECT_EQ(launch.stream, 1);
  EXPECT_EQ(launch.kernel, 0);
  ASSERT_EQ(launch.args.size(), 4u);
  EXPECT_EQ(launch.args[0].tensor, 0);
  EXPECT_EQ(launch.args[1].tensor, 1);
  EXPECT_EQ(launch.args[2].tensor, 3);
  EXPECT_EQ(launch.args[3].kind, moert::Argument::Kind::Scalar);
  EXPECT_EQ(launch.args[3].scalar, moert::Expr::tokens());
}

TEST(PlanDataTest, DependentLaunchesAreForGpusThatHaveThem) {
  ParsedModule parsed(R"mlir(
plan.program @layer max_tokens 8 {
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @k ins() outs(%y : memref<?x8xf32>)
    plan.launch @k dependent ins() outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%y: memref<?x8xf32>, %t: i64)
    attributes {grid = #plan.expr<"1">, block = 32 : i64, shared = 0 : i64} {
  tile.return
}
)mlir");
  ASSERT_TRUE(parsed.module) << parsed.messages;
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "sm_90a");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  EXPECT_FALSE(plan->variants[0].steps[0].dependent);
  EXPECT_TRUE(plan->variants[0].steps[1].dependent);
  EXPECT_TRUE(failed(translatePlan(*parsed.module, "sm_80")));
  EXPECT_NE(parsed.messages.find("kernels for 'sm_80' cannot wait"),
            std::string::npos)
      << parsed.messages;
}

TEST(PlanDataTest, TensorMapsGoWithTheirKernel) {
  std::string text = withProgram(kTileKernels);
  llvm::StringRef attributes = "grid = #plan.expr<\"ceildiv(tokens, 4)\">";
  text.replace(text.find(attributes), attributes.size(),
               (attributes + R"(, block = 128 : i64, tensor_maps = [
      #tile.tensor_map<argument = 0, sizes = [?, 8], along = [0, 1], steps = [1, 1], box = [64, 8]>,
      #tile.tensor_map<argument = 1, sizes = [4, 2, 8], along = [0, 0, 1], steps = [2, 1, 1], box = [4, 2, 8], swizzle = 32>])")
                   .str());
  ParsedModule parsed(text);
  ASSERT_TRUE(parsed.module) << parsed.messages;
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "sm_90a");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  const moert::KernelDecl &product = plan->kernels[0];
  ASSERT_EQ(product.tensorMaps.size(), 2u);
  EXPECT_EQ(product.tensorMaps[0].argument, 0);
  EXPECT_EQ(product.tensorMaps[0].sizes,
            (std::vector<int64_t>{moert::TensorMapDecl::kOwnRows, 8}));
  EXPECT_EQ(product.tensorMaps[0].swizzleBytes, 0);
  const moert::TensorMapDecl &weights = product.tensorMaps[1];
  EXPECT_EQ(weights.argument, 1);
  EXPECT_EQ(weights.sizes, (std::vector<int64_t>{4, 2, 8}));
  EXPECT_EQ(weights.along, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(weights.steps, (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(weights.box, (std::vector<int64_t>{4, 2, 8}));
  EXPECT_EQ(weights.swizzleBytes, 32);
  EXPECT_TRUE(plan->kernels[1].tensorMaps.empty());
}

TEST(PlanDataTest, WeightsMayHaveGaps) {
  std::string text = withProgram(kTileKernels);
  for (size_t at = 0; (at = text.find("memref<8x8xbf16>", at)) != text.npos;)
    text.replace(at, 16, "memref<8x8xbf16, strided<[?, 1]>>");
  ParsedModule parsed(text);
  ASSERT_TRUE(parsed.module) << parsed.messages;
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "cpu");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  for (const moert::TensorDecl &tensor : plan->tensors)
    EXPECT_EQ(tensor.strided, tensor.name == "w");
  // The strides are not separate arguments.
  EXPECT_EQ(plan->variants[0].steps[0].args.size(), 4u);
}

TEST(PlanDataTest, PreparedTensorsMayTakeTheMemoryOfAWeight) {
  ParsedModule parsed(R"mlir(
plan.program @layer max_tokens 8 {
  %a = plan.tensor weight "a" : memref<8x8xf32>
  %b = plan.tensor weight "b" : memref<8x8xf32>
  %p = plan.tensor prepared "p" : memref<8x8xf32>
  %q = plan.tensor prepared "q" in_place "b" : memref<64xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.prepare {
    plan.launch @pack ins(%a : memref<8x8xf32>) outs(%p : memref<8x8xf32>)
    plan.launch @turn ins() outs(%q : memref<64xf32>)
  }
  plan.variant tokens 0 to 8 {
    plan.launch @use ins(%p, %q : memref<8x8xf32>, memref<64xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @pack(%a: memref<8x8xf32>, %p: memref<8x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @turn(%q: memref<64xf32>, %t: i64) {
  tile.return
}
tile.kernel @use(%p: memref<8x8xf32>, %q: memref<64xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
)mlir");
  ASSERT_TRUE(parsed.module) << parsed.messages;
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "cpu");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  EXPECT_EQ(plan->tensors[2].role, moert::TensorRole::Prepared);
  EXPECT_EQ(plan->tensors[2].inPlaceOf, -1);
  EXPECT_EQ(plan->tensors[3].role, moert::TensorRole::Prepared);
  EXPECT_EQ(plan->tensors[3].inPlaceOf, 1);
  ASSERT_EQ(plan->prepare.size(), 2u);
  EXPECT_EQ(plan->prepare[1].args[0].tensor, 3);
}

TEST(PlanDataTest, PrepareKnowsNoTokens) {
  ParsedModule parsed(R"mlir(
plan.program @layer max_tokens 8 {
  %w = plan.tensor weight "w" : memref<8x8xf32>
  plan.prepare {
    plan.launch @check ins(%w : memref<8x8xf32>) outs()
  }
  plan.variant tokens 0 to 8 {
  }
}
tile.kernel @check(%w: memref<8x8xf32>, %t: i64) {
  tile.return
}
)mlir");
  ASSERT_TRUE(parsed.module);
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "cpu");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  ASSERT_EQ(plan->prepare.size(), 1u);
  EXPECT_EQ(plan->prepare[0].args.back().scalar, moert::Expr(0));
}

void expectFailure(const std::string &text, llvm::StringRef message) {
  ParsedModule parsed(text);
  if (!parsed.module)
    return;
  EXPECT_TRUE(failed(translatePlan(*parsed.module, "cpu")));
  EXPECT_NE(parsed.messages.find(message.str()), std::string::npos)
      << parsed.messages;
}

TEST(PlanDataTest, NamesWhatIsMissing) {
  expectFailure("func.func @f() { return }", "has no plan.program");
  expectFailure(withProgram(kTileKernels) +
                    "plan.program @second max_tokens 1 {\n"
                    "  plan.variant tokens 0 to 1 {\n  }\n}\n",
                "is the second program of the module");
  expectFailure("plan.program @p max_tokens 1 {\n"
                "  %a = plan.buffer \"a\" : memref<4xi32>\n"
                "  plan.variant tokens 0 to 1 {\n  }\n}\n",
                "has no slot; run plan-assign-slots");
  expectFailure("plan.program @p max_tokens 1 {\n"
                "  %a = plan.tensor input \"a\" : memref<4xindex>\n"
                "  plan.variant tokens 0 to 1 {\n  }\n}\n",
                "which the runtime does not support");
}

TEST(PlanDataTest, ConfiguredKernelNeedsAGrid) {
  std::string text = withProgram(kTileKernels);
  size_t begin = text.find("    attributes {grid");
  size_t end = text.find("{\n  tile.gemm");
  text.erase(begin, end - begin);
  expectFailure(text, "has phases with a 'config' but no 'grid'");
}

TEST(PlanDataTest, KernelsServeNoMoreTokensThanTheirLoadHas) {
  auto launched = [](int64_t tokens) {
    return "plan.program @p max_tokens 8 {\n"
           "  %x = plan.tensor input \"x\" rows <\"tokens\"> : "
           "memref<?x8xf32>\n"
           "  %y = plan.tensor output \"y\" rows <\"tokens\"> : "
           "memref<?x8xf32>\n"
           "  plan.variant tokens 0 to 8 {\n"
           "    plan.launch @copy ins(%x : memref<?x8xf32>)"
           " outs(%y : memref<?x8xf32>)\n"
           "  }\n"
           "}\n"
           "tile.kernel @copy(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: "
           "i64)"
           " attributes {load = #tile.load<min_tokens = 0, max_tokens = " +
           std::to_string(tokens) + ">} {\n  tile.return\n}\n";
  };
  ParsedModule parsed(launched(8));
  ASSERT_TRUE(parsed.module);
  EXPECT_TRUE(succeeded(translatePlan(*parsed.module, "cpu")))
      << parsed.messages;
  expectFailure(launched(7), "launches @copy for up to 8 tokens, but the "
                             "kernel's 'load' has at most 7");
}

TEST(PlanDataTest, GpusGetThreadsSharedMemoryAndAlignment) {
  std::string text = withProgram(kTileKernels);
  std::string grid = "attributes {grid";
  text.replace(text.find(grid), grid.size(),
               "attributes {block = 128 : i64, shared = 1024 : i64, grid");
  ParsedModule parsed(text);
  ASSERT_TRUE(parsed.module);
  FailureOr<moert::Plan> plan = translatePlan(*parsed.module, "sm_80");
  ASSERT_TRUE(succeeded(plan)) << parsed.messages;
  EXPECT_EQ(plan->target, "sm_80");
  EXPECT_EQ(plan->kernels[0].block, 128);
  EXPECT_EQ(plan->kernels[0].shared, 1024);
  EXPECT_EQ(plan->kernels[1].block, 0);
  for (const moert::TensorDecl &tensor : plan->tensors)
    EXPECT_EQ(tensor.alignment, tensor.dtype == moert::DType::I32 ? 1 : 16)
        << tensor.name;
}

// Collectives are converted by value.
TEST(PlanDataTest, EnumsOfTheDialectsAreThoseOfTheRuntime) {
  std::vector<std::string> axes, planAxes, moeAxes, kinds, planKinds;
  for (auto axis : {moert::MeshAxis::Data, moert::MeshAxis::Tensor})
    axes.push_back(moert::meshAxisName(axis));
  for (unsigned i = 0; i <= plan::getMaxEnumValForAxis(); ++i)
    planAxes.push_back(plan::stringifyAxis(plan::Axis(i)).str());
  for (unsigned i = 0; i <= moe::getMaxEnumValForAxis(); ++i)
    moeAxes.push_back(moe::stringifyAxis(moe::Axis(i)).str());
  EXPECT_EQ(planAxes, axes);
  EXPECT_EQ(moeAxes, axes);
  for (auto kind :
       {moert::CollectiveKind::AllGather, moert::CollectiveKind::ReduceScatter,
        moert::CollectiveKind::AllReduce})
    kinds.push_back(moert::collectiveKindName(kind));
  for (unsigned i = 0; i <= plan::getMaxEnumValForCollectiveKind(); ++i)
    planKinds.push_back(
        plan::stringifyCollectiveKind(plan::CollectiveKind(i)).str());
  EXPECT_EQ(planKinds, kinds);
}

TEST(PlanDataTest, WhatTheRuntimeRefusesIsRefusedHere) {
  // "a" and "b" live at the same time in one slot.
  expectFailure(R"mlir(
plan.program @p max_tokens 4 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" slot 0 rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 4 {
    plan.launch @copy ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @copy ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
  }
}
tile.kernel @copy(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
)mlir",
                "is not a plan that can run: plan: tensors");
}

} // namespace
