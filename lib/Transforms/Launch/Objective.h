//===- Objective.h - what launches are expected to take ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H
#define MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H

#include "moec/Analysis/Cost.h"
#include "moec/Dialect/Plan/Plan.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace moec {

struct DeviceRates;

/// A phase as it runs, or would run.
struct PhaseForm {
  mlir::Operation *phase;
  tile::ConfigAttr config;
  /// What is known of its rows; null for nothing.
  tile::LoadAttr load;
  /// Whether a launch begins with it; else another phase of its kernel does.
  bool isLaunched = true;
  /// Its share of what its model says.
  double factor = 1;
};

/// A number of tokens in a variant.
struct TokenPoint {
  plan::VariantOp variant;
  int64_t tokens;
};

/// Microseconds by token point and, inside of one, by routing.
using PointTimes = llvm::SmallVector<double>;

/// What all choices among launches are made by: the time that is saved at each
/// token point, relative to that of all launches there, summed over the points,
/// less the price of the kernels that are added (`getKernelPrice`).
class Objective {
public:
  Objective(mlir::SymbolTable &symbols, const Target &target);

  /// Whether times are known of the target.
  bool hasTimes() const { return device != nullptr; }
  const DeviceRates &getDevice() const { return *device; }

  /// The token points of a variant that are within a load, if there is one.
  static llvm::SmallVector<TokenPoint> getPoints(plan::VariantOp variant,
                                                 tile::LoadAttr load);

  /// What phases take together at each point. Times are known.
  PointTimes predict(llvm::ArrayRef<PhaseForm> forms,
                     llvm::ArrayRef<TokenPoint> points) const;

  /// The sum of what is saved.
  double getSaved(const PointTimes &before, const PointTimes &after,
                  llvm::ArrayRef<TokenPoint> points);

  /// Predicts launches as they are at these points, for what is built beside
  /// them to be held against, until `forget` says that they are others.
  void remember(llvm::ArrayRef<TokenPoint> points);
  void forget(llvm::ArrayRef<TokenPoint> points);

private:
  PointTimes predictWhole(TokenPoint point) const;
  const PointTimes &getWhole(TokenPoint point);

  mlir::SymbolTable &symbols;
  const Target &target;
  const DeviceRates *device;
  /// What all launches of a variant take, by number of tokens.
  llvm::MapVector<std::pair<mlir::Operation *, int64_t>, PointTimes> wholes;
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_LAUNCH_OBJECTIVE_H
