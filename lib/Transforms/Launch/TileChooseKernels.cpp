//===- TileChooseKernels.cpp - ranges, configs and rewrites -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Chooses ranges of tokens, then configs, then rewrites, which add kernels and
// join others. The number of kernels is known only at the end; if it is too
// large, all runs again with more ranges sharing kernels.

#include "mlir/Pass/PassManager.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILECHOOSEKERNELSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

struct TileChooseKernels
    : moec::impl::TileChooseKernelsPassBase<TileChooseKernels> {
  using TileChooseKernelsPassBase::TileChooseKernelsPassBase;

  void runOnOperation() override {
    if (failed(search()))
      signalPassFailure();
  }

private:
  LogicalResult search();
  /// Runs the pipeline with at most `most` kernels for ranges.
  LogicalResult tryOut(int64_t most);
  int64_t countKernels() {
    return llvm::range_size(getOperation().getOps<tile::KernelOp>());
  }
  template <typename PassOptions>
  PassOptions makeOptions() const {
    PassOptions options;
    options.target = target;
    options.part = part;
    llvm::append_range(options.configs, configs);
    return options;
  }
};

} // namespace

LogicalResult TileChooseKernels::tryOut(int64_t most) {
  OpPassManager pipeline(ModuleOp::getOperationName());
  auto ranges = makeOptions<TileSpecializePassOptions>();
  ranges.maxKernels = most;
  pipeline.addPass(createTileSpecializePass(ranges));
  auto assign = makeOptions<TileAssignConfigPassOptions>();
  assign.lanes = lanes;
  assign.products = products;
  pipeline.addPass(createTileAssignConfigPass(assign));
  auto rewrite = makeOptions<TileRewriteLaunchesPassOptions>();
  rewrite.dependentLaunches = dependentLaunches;
  rewrite.keepAll = keepAll;
  llvm::append_range(rewrite.disable, disable);
  llvm::append_range(rewrite.set, set);
  pipeline.addPass(createTileRewriteLaunchesPass(rewrite));
  return runPipeline(pipeline, getOperation());
}

LogicalResult TileChooseKernels::search() {
  OwningOpRef<ModuleOp> before = getOperation().clone();
  // One range for all token counts gives the fewest kernels.
  int64_t fewest = countKernels();
  for (int64_t most = maxKernels;;) {
    if (failed(tryOut(most)))
      return failure();
    int64_t excess = countKernels() - maxKernels;
    if (excess <= 0 || most <= fewest)
      return success();
    most = std::max(most - excess, fewest);
    getOperation().getBodyRegion().takeBody(
        OwningOpRef<ModuleOp>(before->clone())->getBodyRegion());
  }
}
