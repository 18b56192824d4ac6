//===- LayerOpTest.cpp - what passes ask of a layer -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec::moe;

namespace {

class LayerOpTest : public ::testing::Test {
protected:
  LayerOpTest() { context.loadDialect<MoeDialect>(); }

  /// A layer without a gate over E = 4 local experts, H = 16, I = 12.
  LayerOp parse(StringRef entry, StringRef attributes, StringRef extra = "") {
    std::string text =
        "%x, %gate, %logits, %ids, %weights, %down, %up, %w13, %w2 = "
        "\"builtin.unrealized_conversion_cast\"() : () -> "
        "(tensor<?x16xf32>, tensor<6x16xf32>, tensor<?x4xf32>, "
        "tensor<?x3xi32>, tensor<?x3xf32>, tensor<8x16xf32>, tensor<16x8xf32>, "
        "tensor<4x12x16xf32>, tensor<4x16x12xf32>)\n"
        "%0 = moe.layer %x : tensor<?x16xf32> ";
    text += (entry + extra +
             " experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) "
             "activation { ^bb0(%v: f32): moe.yield %v : f32 } {" +
             attributes + "} -> tensor<?x16xf32>")
                .str();
    module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return {};
    return *module->getOps<LayerOp>().begin();
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(LayerOpTest, SizesOfLogits) {
  LayerOp layer = parse("logits(%logits : tensor<?x4xf32>)",
                        "routing = #moe.routing<top_k = 2>");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer.getNumLocalExperts(), 4);
  EXPECT_EQ(layer.getNumExperts(), 4);
  EXPECT_EQ(layer.getNumRouted(), 4);
  EXPECT_EQ(layer.getTopK(), 2);
  EXPECT_EQ(layer.getHiddenSize(), 16);
  EXPECT_EQ(layer.getExpertWidth(), 16);
  EXPECT_EQ(layer.getIntermediateSize(), 12);
  EXPECT_FALSE(layer.isGated());
  EXPECT_EQ(layer.getMaxTokens(), 16384u);
}

TEST_F(LayerOpTest, SizesOfPlacementAndZeroExperts) {
  LayerOp layer = parse("gate(%gate : tensor<6x16xf32>)",
                        "routing = #moe.routing<top_k = 2>, num_zero_experts = "
                        "1 : i64, placement = #moe.placement<5, local = [4, 2, "
                        "1, 0]>");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer.getNumLocalExperts(), 4);
  EXPECT_EQ(layer.getNumExperts(), 5);
  EXPECT_EQ(layer.getNumRouted(), 6);
}

TEST_F(LayerOpTest, TopKOfIds) {
  LayerOp layer = parse(
      "ids(%ids : tensor<?x3xi32>) weights(%weights : tensor<?x3xf32>)", "");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer.getTopK(), 3);
}

TEST_F(LayerOpTest, RoutingValuesThatAreAbsent) {
  auto routing =
      cast<RoutingAttr>(parseAttribute("#moe.routing<top_k = 2>", &context));
  EXPECT_EQ(routing.getEpsilonValue(), 0.0);
  EXPECT_EQ(routing.getScaleValue(), 1.0);
  routing = cast<RoutingAttr>(parseAttribute(
      "#moe.routing<top_k = 2, renormalize = true, renormalize_epsilon = 0.5 : "
      "f32, scale = 2.5 : f32>",
      &context));
  EXPECT_EQ(routing.getEpsilonValue(), 0.5);
  EXPECT_EQ(routing.getScaleValue(), 2.5);
}

TEST_F(LayerOpTest, CheckedAttributeReports) {
  std::string message;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { message = diagnostic.str(); });
  auto report = [&] { return emitError(UnknownLoc::get(&context)); };
  function_ref<InFlightDiagnostic()> emit = report;
  EXPECT_FALSE(MeshAttr::getChecked(
      emit, &context, /*dp=*/int64_t(1) << 9, /*pcp=*/int64_t(1) << 8,
      /*tp=*/int64_t(1), /*num_experts=*/int64_t(8), /*sp=*/false));
  EXPECT_EQ(message, "'dp' * 'pcp' is 131072; give 1 to 65536");
  EXPECT_FALSE(MeshAttr::getChecked(emit, &context, /*dp=*/int64_t(2),
                                    /*pcp=*/int64_t(1), /*tp=*/int64_t(0),
                                    /*num_experts=*/int64_t(8),
                                    /*sp=*/false));
  EXPECT_EQ(message, "'tp' is 0; give 1 to 65536");
  EXPECT_FALSE(MeshAttr::getChecked(emit, &context, /*dp=*/int64_t(2),
                                    /*pcp=*/int64_t(1), /*tp=*/int64_t(1),
                                    /*num_experts=*/int64_t(8), /*sp=*/true));
  EXPECT_EQ(message, "'sp' splits a group's tokens among its ranks, but 'tp' "
                     "is 1; increase 'tp', or remove 'sp'");
}

} // namespace
