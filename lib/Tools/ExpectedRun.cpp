//===- ExpectedRun.cpp - expected time and work of a run ------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpectedRun.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace moec;

static ExpectedStep expectCollective(plan::CollectiveOp collective,
                                     int64_t tokens,
                                     const DeviceRates *device) {
  ExpectedStep step;
  step.name = getName(collective);
  step.isCollective = true;
  if (device) {
    step.time = predictCollective(collective, tokens, *device);
    step.bound = "link";
  }
  return step;
}

static ExpectedStep expectPhase(const LaunchedPhase &phase, int64_t tokens,
                                int64_t topK, const Target &target,
                                const DeviceRates *device) {
  ExpectedStep step;
  step.name =
      phase.name + describeColumns(plan::LaunchOp(phase.launch).getColumns());
  step.work = getWork(phase.op, topK, tokens);
  if (device) {
    step.time = predictPhase(phase, tokens, topK, target, *device);
    step.bound = getBound(*step.time);
  }
  return step;
}

static void addUp(ExpectedRun &run) {
  llvm::MapVector<StringRef, double> bounds;
  for (const ExpectedStep &step : run.steps) {
    run.work.operations += step.work.operations;
    run.work.bytes += step.work.bytes;
    if (!step.time)
      continue;
    run.us = run.us.value_or(0) + step.time->us;
    run.floorUs += step.time->floorUs;
    if (step.isCollective)
      run.exchangeUs += step.time->us;
    bounds[step.bound] += step.time->us;
  }
  if (!bounds.empty())
    run.bound = llvm::max_element(bounds, llvm::less_second())->first;
}

ExpectedRun moec::expectRun(plan::VariantOp variant, int64_t tokens,
                            int64_t topK, const Target &target,
                            const DeviceRates *device) {
  ExpectedRun run;
  auto phases = getLaunchedPhases(variant);
  const LaunchedPhase *next = phases.begin();
  for (Operation &step : variant.getBody().front()) {
    if (auto collective = dyn_cast<plan::CollectiveOp>(step))
      run.steps.push_back(expectCollective(collective, tokens, device));
    for (; next != phases.end() && next->launch == &step; ++next) {
      run.steps.push_back(expectPhase(*next, tokens, topK, target, device));
      run.numLaunches += next->isFirst;
    }
  }
  addUp(run);
  return run;
}
