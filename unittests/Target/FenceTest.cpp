//===- FenceTest.cpp - every fence of a kernel is missed --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// verify-gpu-fences accepts the kernels that are emitted, and none of them with
// one of its fences taken out.

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr const char *kDense = R"(
tile.kernel @kernel(%x: memref<?x256xbf16>, %w: memref<512x256xbf16>, %v: memref<1xi32>,
    %y: memref<?x512xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<512x256xbf16>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x512xbf16>)
  tile.return
})";

constexpr const char *kGrouped = R"(
tile.kernel @kernel(%x: memref<?x256xf16>, %w: memref<6x512x256xf16>, %o: memref<7xi32>,
    %s: memref<?xi32>, %y: memref<?x256xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf16>, memref<6x512x256xf16>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x256xf16>) epilogue {
      ^bb0(%gate: f32, %up: f32):
        %z = arith.mulf %gate, %up : f32
        tile.yield %z : f32
      } {layout = #moe.weight_layout<order = up_gate>}
  tile.return
})";

class FenceTest : public testing::TestWithParam<const char *> {
protected:
  FenceTest() {
    context.loadDialect<tile::TileDialect>();
    context.disableMultithreading();
  }

  /// The kernel in the llvm and nvvm dialects.
  OwningOpRef<ModuleOp> lower() {
    auto module = parseSourceString<ModuleOp>(GetParam(), &context);
    if (!module)
      return module;
    constexpr llvm::StringLiteral target = "sm_90a";
    PassManager manager(&context);
    TileAssignConfigPassOptions options;
    options.target = target.str();
    manager.addPass(createTileAssignConfigPass(options));
    buildTileToNVVMPipeline(manager, target);
    return failed(manager.run(*module)) ? nullptr : std::move(module);
  }

  static SmallVector<Operation *> findFences(ModuleOp module) {
    SmallVector<Operation *> fences;
    module.walk([&](Operation *op) {
      if (isa<NVVM::FenceProxyOp, NVVM::FenceMbarrierInitOp>(op))
        fences.push_back(op);
    });
    return fences;
  }

  /// The errors of the pass, one per line.
  std::string verify(ModuleOp module) {
    std::string errors;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      errors += diagnostic.str() + "\n";
      return success();
    });
    PassManager manager(&context);
    manager.addNestedPass<LLVM::LLVMFuncOp>(createVerifyGpuFencesPass());
    bool hasPassed = succeeded(manager.run(module));
    EXPECT_EQ(hasPassed, errors.empty());
    return errors;
  }

  MLIRContext context;
};

TEST_P(FenceTest, EachIsNeeded) {
  OwningOpRef<ModuleOp> module = lower();
  ASSERT_TRUE(module);
  EXPECT_EQ(verify(*module), "");
  size_t count = findFences(*module).size();
  // There are fences of barriers, after copies of rows, and before results are
  // copied out.
  EXPECT_GE(count, 3u);
  for (size_t i = 0; i < count; ++i) {
    OwningOpRef<ModuleOp> changed = module->clone();
    Operation *fence = findFences(*changed)[i];
    std::string name = fence->getName().getStringRef().str();
    std::string where;
    llvm::raw_string_ostream(where) << fence->getLoc();
    fence->erase();
    EXPECT_NE(verify(*changed).find("insert '" + name), std::string::npos)
        << name << " number " << i << " at " << where;
  }
}

INSTANTIATE_TEST_SUITE_P(Hopper, FenceTest, testing::Values(kDense, kGrouped));

} // namespace
