//===- Objective.h - predicted time of launches -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H
#define MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Schedules/Cost.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace moec {

struct DeviceRates;

/// A phase with the config and load that its time is predicted for.
struct PhaseForm {
  mlir::Operation *phase;
  tile::ConfigAttr config;
  /// The load; null if unknown.
  tile::LoadAttr load;
  /// Whether it is the first phase of its kernel.
  bool isLaunched = true;
  /// A factor of the predicted time.
  double factor = 1;
  /// True for the time in a run, and for a dependent launch.
  bool isInRun = false, isDependent = false;
};

/// A token count in a variant.
struct TokenPoint {
  plan::VariantOp variant;
  int64_t tokens;
};

/// Microseconds by token point and, within one, by routing.
using PointTimes = llvm::SmallVector<double>;

/// The objective of all launch rewrites: the time saved at each token point,
/// relative to that of all launches there, summed over the points, less the
/// penalty of the added kernels (`getKernelPenalty`).
class Objective {
public:
  Objective(mlir::SymbolTable &symbols, const Target &target);

  /// Whether there is a cost model for the target.
  bool hasTimes() const { return device != nullptr; }
  const DeviceRates &getDevice() const { return *device; }

  /// Token points of a variant within a load; all without a load.
  static llvm::SmallVector<TokenPoint> getPoints(plan::VariantOp variant,
                                                 tile::LoadAttr load);

  /// Total time of the phases at each point. Requires `hasTimes()`.
  PointTimes predict(llvm::ArrayRef<PhaseForm> forms,
                     llvm::ArrayRef<TokenPoint> points) const;

  /// The saved time, relative and summed.
  double getSaved(const PointTimes &before, const PointTimes &after,
                  llvm::ArrayRef<TokenPoint> points);

  /// Predicts the existing launches at these points, as a baseline for new
  /// ones, until `forget` invalidates it.
  void remember(llvm::ArrayRef<TokenPoint> points);
  void forget(llvm::ArrayRef<TokenPoint> points);

  /// Time of all launches of the variant at a point.
  const PointTimes &getWhole(TokenPoint point);
  /// Time of the launches in a run (`correctForRun`), as `--explain` shows it,
  /// in which launches may be dependent.
  PointTimes predictRun(TokenPoint point, bool mayDepend) const;

private:
  llvm::SmallVector<PhaseForm> getForms(plan::VariantOp variant) const;

  mlir::SymbolTable &symbols;
  const Target &target;
  const DeviceRates *device;
  /// Time of all launches of a variant, by token count.
  llvm::MapVector<std::pair<mlir::Operation *, int64_t>, PointTimes> wholes;
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H
