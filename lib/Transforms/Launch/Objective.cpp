//===- Objective.cpp - what launches are expected to take -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Objective.h"

#include "../Tile/Launches.h"
#include "moec/Schedules/Device.h"

using namespace mlir;
using namespace moec;

Objective::Objective(SymbolTable &symbols, const Target &target)
    : symbols(symbols), target(target), device(getDeviceRates(target)) {}

SmallVector<TokenPoint> Objective::getPoints(plan::VariantOp variant,
                                             tile::LoadAttr load) {
  int64_t min = variant.getMinTokens(), max = variant.getMaxTokens();
  if (load) {
    min = std::max<int64_t>(min, load.getMinTokens());
    max = std::min<int64_t>(max, load.getMaxTokens());
  }
  SmallVector<TokenPoint> points;
  if (min <= max)
    for (int64_t tokens : getTokenPoints(min, max))
      points.push_back({variant, tokens});
  return points;
}

namespace {

/// Predicts one phase at any token point.
class PhaseTime {
public:
  PhaseTime(const PhaseForm &form, const Target &target,
            const DeviceRates &device)
      : form(form), device(device) {
    const Schedule *schedule =
        form.config ? findSchedule(target, form.config.getSchedule()) : nullptr;
    if (!schedule)
      return;
    const auto *modelled = schedule->as<ModelsTime>();
    if (modelled && form.load)
      model = modelled->costModel(form.phase, form.load, target);
    predicts = schedule->as<PredictsTime>();
  }

  double get(int64_t tokens, Routing routing) const {
    double launch =
        predicts ? predicts->getLaunchTime(device) : device.getLaunchTime();
    double hidden = form.isLaunched ? 0 : launch;
    Prediction time;
    if (model)
      time = model->predict(form.config, tokens, routing);
    else
      time.us = time.fixedUs =
          launch + (predicts ? predicts->predict(form.phase, form.load, tokens,
                                                 routing, device)
                             : 0);
    if (!form.isInRun)
      return form.factor * time.us - hidden;
    time.us -= hidden;
    time.fixedUs -= hidden;
    correctForRun(time, form.phase, form.isDependent);
    return time.us;
  }

private:
  const PhaseForm &form;
  const DeviceRates &device;
  std::unique_ptr<CostModel> model;
  const PredictsTime *predicts = nullptr;
};

} // namespace

PointTimes Objective::predict(ArrayRef<PhaseForm> forms,
                              ArrayRef<TokenPoint> points) const {
  ArrayRef<WeightedRouting> routings = getWeightedRoutings();
  PointTimes times(points.size() * routings.size(), 0);
  for (const PhaseForm &form : forms) {
    PhaseTime time(form, target, *device);
    double *sum = times.begin();
    for (const TokenPoint &point : points)
      for (const WeightedRouting &weighted : routings)
        *sum++ += time.get(point.tokens, weighted.routing);
  }
  return times;
}

SmallVector<PhaseForm> Objective::getForms(plan::VariantOp variant) const {
  SmallVector<PhaseForm> forms;
  SmallVector<plan::LaunchOp> dependent = findDependent(variant);
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
    tile::KernelOp kernel = getKernel(launch, symbols);
    if (!kernel)
      continue;
    Block &body = kernel.getBody().front();
    for (Operation &phase : body.without_terminator()) {
      PhaseForm form{&phase, phase.getAttrOfType<tile::ConfigAttr>("config"),
                     kernel.getLoadAttr(),
                     /*isLaunched=*/&phase == &body.front()};
      form.isDependent =
          form.isLaunched && llvm::is_contained(dependent, launch);
      forms.push_back(form);
    }
  }
  return forms;
}

PointTimes Objective::predictRun(TokenPoint point, bool mayDepend) const {
  SmallVector<PhaseForm> forms = getForms(point.variant);
  for (PhaseForm &form : forms) {
    form.isInRun = true;
    form.isDependent &= mayDepend;
  }
  return predict(forms, point);
}

const PointTimes &Objective::getWhole(TokenPoint point) {
  PointTimes &whole = wholes[{point.variant, point.tokens}];
  if (whole.empty())
    whole = predict(getForms(point.variant), point);
  return whole;
}

void Objective::remember(ArrayRef<TokenPoint> points) {
  if (hasTimes())
    for (const TokenPoint &point : points)
      (void)getWhole(point);
}

void Objective::forget(ArrayRef<TokenPoint> points) {
  llvm::DenseSet<Operation *> variants;
  for (const TokenPoint &point : points)
    variants.insert(point.variant);
  wholes.remove_if(
      [&](const auto &entry) { return variants.contains(entry.first.first); });
}

double Objective::getSaved(const PointTimes &before, const PointTimes &after,
                           ArrayRef<TokenPoint> points) {
  ArrayRef<WeightedRouting> routings = getWeightedRoutings();
  double saved = 0;
  for (auto [i, point] : llvm::enumerate(points)) {
    const PointTimes &whole = getWhole(point);
    for (auto [j, weighted] : llvm::enumerate(routings)) {
      size_t at = i * routings.size() + j;
      saved += weighted.weight * (before[at] - after[at]) / whole[j];
    }
  }
  return saved;
}
