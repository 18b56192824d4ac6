//===- PartialRegion.h - scalar regions of parts of sums --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_MOE_PARTIALREGION_H
#define MOEC_LIB_TRANSFORMS_MOE_PARTIALREGION_H

#include "moec/Dialect/Moe/Moe.h"
#include "llvm/ADT/DenseMap.h"

#include <string>

namespace moec {

/// A set of axes of a mesh.
class Axes {
public:
  void insert(moe::Axis axis) { bits |= bitOf(axis); }
  void erase(moe::Axis axis) { bits &= ~bitOf(axis); }
  bool contains(moe::Axis axis) const { return bits & bitOf(axis); }
  bool empty() const { return bits == 0; }
  bool operator==(const Axes &other) const { return bits == other.bits; }

  /// "dp and tp".
  std::string str() const;

private:
  static unsigned bitOf(moe::Axis axis) { return 1u << unsigned(axis); }

  unsigned bits = 0;
};

/// The value that an argument of a scalar region stands for, and the axes over
/// which it is a partial.
struct RegionInput {
  mlir::Value from;
  Axes partial;
};

/// Propagates partials through a scalar region, which must be linear in them:
/// sums of partials over equal axes, and products with reduced values.
class PartialRegion {
public:
  PartialRegion(mlir::Region &region, llvm::ArrayRef<RegionInput> inputs)
      : region(region), inputs(inputs) {}

  /// The axes over which the region's result is a partial.
  Axes run();

  /// The op that is not linear in a partial, or adds a reduced value to one;
  /// null for none.
  mlir::Operation *getCulprit() const { return culprit; }
  bool addsWhole() const { return isSum; }
  /// The partial input of the culprit.
  mlir::Value getBlamed() const { return blamed.from; }
  Axes getBlamedAxes() const { return blamed.partial; }

private:
  RegionInput lookup(mlir::Value value) const { return parts.lookup(value); }
  RegionInput visit(mlir::Operation &op);
  RegionInput add(mlir::Operation &op, mlir::Value x, mlir::Value y);
  RegionInput refuse(mlir::Operation &op, bool adds, RegionInput part);

  mlir::Region &region;
  llvm::ArrayRef<RegionInput> inputs;
  /// Values that are partials.
  llvm::DenseMap<mlir::Value, RegionInput> parts;
  mlir::Operation *culprit = nullptr;
  bool isSum = false;
  RegionInput blamed;
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_MOE_PARTIALREGION_H
