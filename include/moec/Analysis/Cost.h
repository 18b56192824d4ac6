//===- Cost.h - how long a phase takes, and which config is best *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_COST_H
#define MOEC_ANALYSIS_COST_H

#include "moec/Analysis/RowCounts.h"
#include "moec/Analysis/Schedules.h"

#include <memory>

namespace moec {

struct DeviceRates;

/// What a phase is expected to take, and what of. The parts overlap.
struct Prediction {
  double us = 0;
  /// The time of nothing but the bytes and operations that have to be, at the
  /// ceilings of the device.
  double floorUs = 0;

  double streamUs = 0;
  double tensorUs = 0;
  double l2Us = 0;
  double powerUs = 0;
  double epilogueUs = 0;
  double fixedUs = 0;
  /// Groups with rows; items of work; how many one multiprocessor gets at most;
  /// rows that are computed per row that counts. All on average.
  double activeGroups = 0;
  double items = 0;
  double waves = 0;
  double padding = 1;
};

/// Predicts the times of one phase with any candidate of one schedule.
class CostModel {
public:
  virtual ~CostModel() = default;
  /// `config` is legal for the phase.
  virtual Prediction predict(tile::ConfigAttr config, int64_t tokens,
                             Routing routing = Routing::Uniform) = 0;
};

/// A routing, and so much of a candidate's score is how it bears it.
struct WeightedRouting {
  Routing routing;
  double weight;
};
/// Experts that are equally likely, mostly, and some uneven ones.
llvm::ArrayRef<WeightedRouting> getWeightedRoutings();

/// A config that was looked at.
struct Candidate {
  tile::ConfigAttr config;
  /// Why it cannot be; empty for one that can.
  std::string whyNot;
  /// What it has to save, relative to the time of others, to be worth what it
  /// takes to compile.
  double price = 0;
  /// At each of the token counts asked for: the time, if experts are equally
  /// likely; and what candidates are compared by, that time relative to the
  /// best candidate's, with little weight the same for uneven routings, and the
  /// price.
  llvm::SmallVector<double> us, scores;
  /// The mean of the scores.
  double relative = 0;
};

/// A schedule whose time for a load is modelled, so that its config depends on
/// it: what is chosen from, and by.
class ModelsTime {
public:
  virtual ~ModelsTime() = default;
  virtual std::vector<Candidate> candidates(mlir::Operation *op,
                                            tile::LoadAttr load,
                                            const Target &target) const = 0;
  virtual std::unique_ptr<CostModel> costModel(mlir::Operation *op,
                                               tile::LoadAttr load,
                                               const Target &target) const = 0;
};

/// Token counts that stand for a range: powers of two and its end. Those of
/// two ranges side by side, of which the first ends at a power of two, are
/// those of both together.
llvm::SmallVector<int64_t> getTokenPoints(int64_t minTokens, int64_t maxTokens);

/// A schedule whose config does not depend on time, but of which it is known
/// what it takes: one that copies rows, or that counts or ranks slots.
class PredictsTime {
public:
  virtual ~PredictsTime() = default;
  /// Microseconds beside a launch, of `op` with its config; 0 where that
  /// depends on rows of which nothing is known, for `load` is null.
  virtual double predict(mlir::Operation *op, tile::LoadAttr load,
                         int64_t tokens, Routing routing,
                         const DeviceRates &device) const = 0;
  /// Microseconds of a launch that begins with such an op.
  virtual double getLaunchTime(const DeviceRates &device) const;
};

/// What a kernel more has to save to be worth what it takes to compile: time
/// relative to that of all launches, summed over token points. The longer its
/// code, the more.
double getKernelPrice(tile::KernelOp kernel);

/// Every candidate that a schedule has for `phase`, also those of schedules
/// that it is compared with, best first, of equals the one that comes first
/// among the schedule's; those that cannot be are last.
std::vector<Candidate> enumerateCandidates(mlir::Operation *phase,
                                           const ModelsTime &schedule,
                                           const Target &target,
                                           tile::LoadAttr load);

/// The same in the order of the schedule, at other token counts.
std::vector<Candidate> evaluateCandidates(mlir::Operation *phase,
                                          const ModelsTime &schedule,
                                          const Target &target,
                                          tile::LoadAttr load,
                                          llvm::ArrayRef<int64_t> points);

/// The best candidate for the load of the phase's kernel; null where nothing is
/// known of the load, or of time.
tile::ConfigAttr chooseForLoad(mlir::Operation *phase, const Target &target);
/// The same for a load that the kernel does not have.
tile::ConfigAttr chooseForLoad(mlir::Operation *phase, const Target &target,
                               tile::LoadAttr load);

} // namespace moec

#endif // MOEC_ANALYSIS_COST_H
