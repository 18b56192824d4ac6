//===- PlanOverlapLaunches.cpp - which launches are dependent ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Tile/Launches.h"
#include "moec/Transforms/Passes.h"
#include "moert/GpuTarget.h"

namespace moec {
#define GEN_PASS_DEF_PLANOVERLAPLAUNCHESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

static void overlapLaunches(plan::VariantOp variant) {
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>())
    launch.setDependent(false);
  for (plan::LaunchOp launch : findDependent(variant))
    launch.setDependent(true);
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
      overlapLaunches(variant);
  }
};

} // namespace
