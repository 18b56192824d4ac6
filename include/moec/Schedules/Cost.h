//===- Cost.h - how long a phase takes, and which config is best *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_COST_H
#define MOEC_SCHEDULES_COST_H

#include "RowCounts.h"
#include "Schedules.h"

#include <memory>

namespace moec {

struct DeviceRates;
struct HostRates;

/// Predicted time of a phase and its components, which overlap.
struct Prediction {
  double us = 0;
  /// Least time: only the necessary bytes and operations, at the device's
  /// ceilings.
  double floorUs = 0;

  double streamUs = 0;
  /// The time of products, by the unit that `productsBy` names.
  double tensorUs = 0;
  llvm::StringRef productsBy = "tensor cores";
  double l2Us = 0;
  double powerUs = 0;
  double epilogueUs = 0;
  double fixedUs = 0;
  /// Means: groups with rows; work items; the most items of one SM; computed
  /// rows per useful row.
  double activeGroups = 0;
  double items = 0;
  double waves = 0;
  double padding = 1;
};

/// The largest term of a prediction: "memory", "tensor cores" (on a CPU
/// "instructions"), "L2", "power" or "launch".
llvm::StringRef getBound(const Prediction &prediction);

/// Corrects what all configs of a range share, which models leave out since it
/// changes no choice among them: a dependent launch starts ahead of the end of
/// the one before it, and products take less than a model says where nothing
/// else bounds them.
void correctForRun(Prediction &prediction, mlir::Operation *phase,
                   bool isDependent);

/// Predicts the time of one phase with any candidate config of one schedule.
class CostModel {
public:
  virtual ~CostModel() = default;
  /// Requires that `config` is legal for the phase.
  virtual Prediction predict(tile::ConfigAttr config, int64_t tokens,
                             Routing routing = Routing::Uniform) = 0;
};

/// A routing and its weight in a candidate's score.
struct WeightedRouting {
  Routing routing;
  double weight;
};
/// Mostly uniform routing, and some uneven ones.
llvm::ArrayRef<WeightedRouting> getWeightedRoutings();

/// A config that was considered.
struct Candidate {
  tile::ConfigAttr config;
  /// Reason why the config is not possible; empty if it is.
  std::string whyNot;
  /// Code-size penalty: the relative saving that pays for compiling the config.
  double penalty = 0;
  /// Per requested token count: the time with uniform routing, and the score by
  /// which candidates are compared. A score is the time relative to the best
  /// candidate's, plus the relative times with uneven routings at a small
  /// weight, plus the penalty.
  llvm::SmallVector<double> us, scores;
  double relative = 0;
};

/// A schedule with a cost model, so that its config depends on the load: the
/// candidates and the model to rank them.
class ModelsTime {
public:
  virtual ~ModelsTime() = default;
  virtual std::vector<Candidate> candidates(mlir::Operation *op,
                                            tile::LoadAttr load,
                                            const Target &target) const = 0;
  virtual std::unique_ptr<CostModel> costModel(mlir::Operation *op,
                                               tile::LoadAttr load,
                                               const Target &target) const = 0;
  /// The config in place of `chosen`, the best candidate, that costs less with
  /// skewed loads and little more with uniform ones.
  virtual tile::ConfigAttr adaptToSkew(mlir::Operation * /*op*/,
                                       tile::LoadAttr /*load*/,
                                       const Target & /*target*/,
                                       tile::ConfigAttr chosen) const {
    return chosen;
  }
  /// Columns and rows of the largest tile of a candidate.
  virtual std::pair<int64_t, int64_t>
  getTile(tile::ConfigAttr candidate) const = 0;
};

/// Representative token counts of a range: powers of two and its end. The
/// points of two adjacent ranges, the first of which ends at a power of two,
/// are those of the joint range.
llvm::SmallVector<int64_t> getTokenPoints(int64_t minTokens, int64_t maxTokens);

/// A schedule whose config does not depend on time but whose time is
/// predictable, such as copies of rows and counting or ranking of slots.
class PredictsTime {
public:
  virtual ~PredictsTime() = default;
  /// Microseconds of `op` with its config, without the launch; 0 if the time
  /// depends on rows and `load` is null.
  virtual double predict(mlir::Operation *op, tile::LoadAttr load,
                         int64_t tokens, Routing routing,
                         const DeviceRates &device) const = 0;
  /// Microseconds of a launch that begins with such an op.
  virtual double getLaunchTime(const DeviceRates &device) const;
};

/// A schedule of the CPU whose time follows from the host's rates. Its configs
/// do not depend on times.
class PredictsHostTime {
public:
  virtual ~PredictsHostTime() = default;
  /// The time of `op` with its config without the launch, and its components,
  /// for a run that reads `readBytes` per second. `bytes` and `operations` are
  /// the least that it has.
  virtual Prediction predict(mlir::Operation *op, double bytes,
                             double operations, double readBytes,
                             int64_t tokens, int64_t topK,
                             const HostRates &host) const = 0;
};

/// Code-size penalty of one more kernel: the saving that pays for compiling it,
/// relative to the time of all launches and summed over token points. Longer
/// code costs more.
double getKernelPenalty(tile::KernelOp kernel);

/// All candidates for `phase`, with those of the schedules it is compared with.
/// Best first, stable; impossible ones last.
std::vector<Candidate> enumerateCandidates(mlir::Operation *phase,
                                           const ModelsTime &schedule,
                                           const Target &target,
                                           tile::LoadAttr load);

/// All candidates in the order of the schedule, evaluated at the given token
/// counts.
std::vector<Candidate> evaluateCandidates(mlir::Operation *phase,
                                          const ModelsTime &schedule,
                                          const Target &target,
                                          tile::LoadAttr load,
                                          llvm::ArrayRef<int64_t> points);

/// The best candidate for the load of the phase's kernel; null without a load
/// or a cost model.
tile::ConfigAttr chooseForLoad(mlir::Operation *phase, const Target &target);
/// The best candidate for a given load instead of the kernel's.
tile::ConfigAttr chooseForLoad(mlir::Operation *phase, const Target &target,
                               tile::LoadAttr load);

} // namespace moec

#endif // MOEC_SCHEDULES_COST_H
