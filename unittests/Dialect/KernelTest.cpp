//===- KernelTest.cpp - building kernels and sizes --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Tile/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;

namespace {

class KernelTest : public ::testing::Test {
protected:
  KernelTest() : builder(&context) {
    context.loadDialect<plan::PlanDialect, tile::TileDialect>();
    module = ModuleOp::create(builder.getUnknownLoc());
    builder.setInsertionPointToStart(module->getBody());
  }

  MLIRContext context;
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
};

TEST_F(KernelTest, BuildTileKernel) {
  Type memref =
      MemRefType::get({ShapedType::kDynamic, 8}, builder.getF32Type());
  auto kernel = tile::KernelOp::create(
      builder, builder.getUnknownLoc(), "k",
      builder.getFunctionType({memref, memref, builder.getI64Type()}, {}));
  Block &body = kernel.getBody().front();
  builder.setInsertionPointToEnd(&body);
  tile::ReturnOp::create(builder, builder.getUnknownLoc());
  EXPECT_TRUE(succeeded(verify(*module)));
  EXPECT_EQ(kernel.getSymName(), "k");
  EXPECT_EQ(body.getNumArguments(), 3u);
  EXPECT_EQ(kernel.getTokens(), body.getArgument(2));
  EXPECT_FALSE(kernel.getGrid());
}

TEST_F(KernelTest, BuildPlanKernel) {
  Type tensor =
      RankedTensorType::get({ShapedType::kDynamic, 8}, builder.getF32Type());
  auto kernel = plan::KernelOp::create(builder, builder.getUnknownLoc(), "k",
                                       builder.getFunctionType(tensor, tensor));
  Block &body = kernel.getBody().front();
  builder.setInsertionPointToEnd(&body);
  plan::ReturnOp::create(builder, builder.getUnknownLoc(),
                         ValueRange(body.getArguments()));
  EXPECT_TRUE(succeeded(verify(*module)));
  EXPECT_EQ(kernel.getArgumentTypes().size(), 1u);
  EXPECT_EQ(kernel.getResultTypes().size(), 1u);
}

TEST_F(KernelTest, ExprOfAttribute) {
  auto attr = plan::ExprAttr::get(&context, "ceildiv(tokens * 8, 16)");
  EXPECT_EQ(attr.getExpr().str(), attr.getText());
  moert::Result<int64_t> value = attr.getExpr().evaluate(3);
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, 2);
}

} // namespace
