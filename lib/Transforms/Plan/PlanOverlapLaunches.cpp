//===- PlanOverlapLaunches.cpp - which launches are dependent ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Transforms/Passes.h"
#include "moert/GpuTarget.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_PLANOVERLAPLAUNCHESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

static void overlapLaunches(Block &steps) {
  // Streams whose latest step is a launch.
  llvm::DenseSet<int64_t> launching;
  for (Operation &op : steps)
    llvm::TypeSwitch<Operation *>(&op)
        .Case([&](plan::LaunchOp launch) {
          launch.setDependent(!launching.insert(launch.getStream()).second);
        })
        .Case<plan::CollectiveOp, plan::RecordOp, plan::WaitOp>(
            [&](auto step) { launching.erase(step.getStream()); });
}

namespace {

struct PlanOverlapLaunches
    : moec::impl::PlanOverlapLaunchesPassBase<PlanOverlapLaunches> {
  using PlanOverlapLaunchesPassBase::PlanOverlapLaunchesPassBase;

  void runOnOperation() override {
    std::optional<moert::GpuTarget> gpu = moert::GpuTarget::parse(target);
    if (!gpu || !gpu->hasDependentLaunches())
      return;
    // Weights are prepared once, where overlap does not matter.
    for (auto variant : getOperation().getBody().getOps<plan::VariantOp>())
      overlapLaunches(variant.getBody().front());
  }
};

} // namespace
