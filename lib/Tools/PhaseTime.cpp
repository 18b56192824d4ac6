//===- PhaseTime.cpp - expected time of a phase -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PhaseTime.h"

#include "PhaseWork.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Schedules/Exchange.h"
#include "moec/Schedules/ExchangeTime.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

SmallVector<LaunchedPhase> moec::getLaunchedPhases(plan::VariantOp variant) {
  SmallVector<LaunchedPhase> phases;
  auto module = variant->getParentOfType<ModuleOp>();
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
    auto kernel = module.lookupSymbol<tile::KernelOp>(launch.getKernel());
    auto ops = kernel.getBody().front().without_terminator();
    bool isAlone = llvm::hasSingleElement(ops);
    for (Operation &op : ops) {
      StringRef name = isAlone ? kernel.getSymName() : getResultName(&op, 0);
      if (name.empty())
        name = op.getName().stripDialect();
      phases.push_back({launch, kernel, &op, name.str(),
                        /*isFirst=*/&op == &*ops.begin(), isAlone});
    }
  }
  return phases;
}

static const Schedule *getSchedule(const LaunchedPhase &phase,
                                   const Target &target) {
  auto config = phase.op->getAttrOfType<tile::ConfigAttr>("config");
  return config ? findSchedule(target, config.getSchedule()) : nullptr;
}

const ModelsTime *moec::findModelled(const LaunchedPhase &phase,
                                     const Target &target) {
  tile::KernelOp kernel = phase.kernel;
  const Schedule *schedule =
      kernel.getLoadAttr() ? getSchedule(phase, target) : nullptr;
  return schedule ? schedule->as<ModelsTime>() : nullptr;
}

/// The schedule that predicts the phase's time, or null.
static const PredictsTime *findPredicted(const LaunchedPhase &phase,
                                         const Target &target) {
  const Schedule *schedule = getSchedule(phase, target);
  return schedule ? schedule->as<PredictsTime>() : nullptr;
}

Prediction moec::predictCollective(plan::CollectiveOp collective,
                                   int64_t tokens, const DeviceRates &device) {
  ExchangeTime time = predictExchange(collective, tokens, device);
  Prediction prediction;
  prediction.us = time.us;
  prediction.floorUs = time.floorUs;
  return prediction;
}

std::string moec::describeColumns(std::optional<ArrayRef<int64_t>> columns) {
  if (!columns)
    return {};
  return " columns " + std::to_string(columns->front()) + " to " +
         std::to_string(columns->front() + columns->back() - 1);
}

std::string moec::getName(plan::CollectiveOp collective) {
  std::string name = (plan::stringifyCollectiveKind(collective.getKind()) +
                      " " + plan::stringifyAxis(collective.getAxis()))
                         .str();
  return name + describeColumns(collective.getColumns());
}

static StringRef getTensorName(Value memory) {
  if (auto tensor = memory.getDefiningOp<plan::TensorOp>())
    return tensor.getName();
  return memory.getDefiningOp<plan::BufferOp>().getName();
}

std::string moec::describeDestinations(plan::CollectiveOp collective) {
  auto symbol =
      collective->getAttrOfType<FlatSymbolRefAttr>(kExchangeKernelAttr);
  if (!collective.getDestinations() || !symbol)
    return {};
  auto kernel =
      SymbolTable::lookupNearestSymbolFrom<tile::KernelOp>(collective, symbol);
  auto exchange =
      kernel ? dyn_cast<tile::ExchangeOp>(kernel.getBody().front().front())
             : tile::ExchangeOp();
  std::optional<int64_t> leastRows =
      exchange ? getLeastRoutedRows(exchange) : std::nullopt;
  if (!leastRows || exchange.getIns().size() != collective.getIns().size())
    return {};
  std::string names;
  for (auto [i, in] : llvm::enumerate(collective.getIns()))
    if (movesToDestinations(exchange, int64_t(i)))
      names += (names.empty() ? "" : ", ") + getTensorName(in).str();
  if (names.empty())
    return {};
  return llvm::formatv(
      "{0} through peer memory, from {1} tokens per rank on: rows of {2} go "
      "only to destination ranks, {3:f0} % of the other ranks\n",
      getName(collective), std::max<int64_t>(*leastRows, 1), names,
      100 * getRoutedShare(collective));
}

std::string moec::describeReplaced(plan::CollectiveOp collective) {
  plan::LaunchOp launch = collective.getReplacedLaunch();
  if (!launch)
    return {};
  std::string made;
  for (Value out : launch.getOuts())
    made += (made.empty() ? "" : " and ") + getTensorName(out).str();
  Value from =
      collective.getRows() ? collective.getRows() : collective.getUnquantized();
  return llvm::formatv("{0} through peer memory computes {1} from {2} itself "
                       "and replaces the launch of @{3}\n",
                       getName(collective), made, getTensorName(from),
                       launch.getKernel());
}

/// The bytes of all steps of a run.
static double getRunBytes(plan::VariantOp variant, int64_t topK,
                          int64_t tokens) {
  double bytes = 0;
  for (const LaunchedPhase &phase : getLaunchedPhases(variant))
    bytes += getWork(phase.op, topK, tokens).bytes;
  return bytes;
}

/// Predicts by rates of the host. What a run reads may stay in caches until the
/// next one.
static Prediction predictOnHost(const LaunchedPhase &phase, int64_t tokens,
                                int64_t topK, const Target &target,
                                const HostRates &host) {
  plan::LaunchOp launch = phase.launch;
  double readBytes = host.getReadBytes(
      getRunBytes(launch->getParentOfType<plan::VariantOp>(), topK, tokens));
  Work work = getWork(phase.op, topK, tokens);
  const Schedule *schedule = getSchedule(phase, target);
  const auto *predicts = schedule ? schedule->as<PredictsHostTime>() : nullptr;
  Prediction prediction;
  if (predicts) {
    prediction = predicts->predict(phase.op, work.bytes, work.operations,
                                   readBytes, tokens, topK, host);
  } else {
    prediction.streamUs = 1e6 * work.bytes / readBytes;
    prediction.tensorUs = 1e6 * work.operations / host.fmas;
    prediction.us = std::max(prediction.streamUs, prediction.tensorUs);
    prediction.floorUs = prediction.us;
  }
  prediction.productsBy = "instructions";
  if (phase.isFirst) {
    prediction.fixedUs = host.launchUs;
    prediction.us += host.launchUs;
  }
  return prediction;
}

Prediction moec::predictPhase(const LaunchedPhase &phase, int64_t tokens,
                              int64_t topK, const Target &target,
                              const DeviceRates &device) {
  if (device.host)
    return predictOnHost(phase, tokens, topK, target, *device.host);
  Prediction prediction;
  tile::LoadAttr load = tile::KernelOp(phase.kernel).getLoadAttr();
  const PredictsTime *predicts = findPredicted(phase, target);
  double launch =
      predicts ? predicts->getLaunchTime(device) : device.getLaunchTime();
  if (const ModelsTime *schedule = findModelled(phase, target)) {
    prediction =
        schedule->costModel(phase.op, load, target)
            ->predict(phase.op->getAttrOfType<tile::ConfigAttr>("config"),
                      tokens);
  } else {
    Work work = getWork(phase.op, topK, tokens);
    prediction.floorUs =
        1e6 * std::max(work.bytes / device.readBytes,
                       work.operations / device.bf16Operations);
    prediction.streamUs = 1e6 * work.bytes / device.copyBytes;
    prediction.tensorUs = 1e6 * work.operations / device.bf16Operations;
    double overlapped = std::max(prediction.streamUs, prediction.tensorUs);
    prediction.fixedUs = launch;
    if (predicts)
      prediction.fixedUs += std::max(
          predicts->predict(phase.op, load, tokens, Routing::Uniform, device) -
              overlapped,
          0.0);
    prediction.us = overlapped + prediction.fixedUs;
  }
  if (!phase.isFirst) {
    prediction.us -= launch;
    prediction.fixedUs -= launch;
  }
  plan::LaunchOp launched = phase.launch;
  correctForRun(prediction, phase.op, phase.isFirst && launched.getDependent());
  return prediction;
}
