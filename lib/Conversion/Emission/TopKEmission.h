//===- TopKEmission.h - routing of rows of experts --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_TOPKEMISSION_H
#define MOEC_LIB_CONVERSION_EMISSION_TOPKEMISSION_H

#include "TopKSelect.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

namespace moec {

/// Writes what a CTA of a schedule of top_k does: it routes `rows` tokens, one
/// after the other, with a row's experts in vectors of `lanes`. Scratch memory
/// holds the values of a row (NaN where the value counts as 0, and in pads) and
/// their keys. The order of selection is total, so only the rounding of scores
/// and weights depends on the schedule.
class TopKEmission {
public:
  TopKEmission(tile::TopKOp op, KernelEmitter &emitter, int64_t lanes);

  mlir::LogicalResult run(int64_t rows);

private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  using Predicate = mlir::arith::CmpFPredicate;

  bool isHash() const { return routing.getSelect() == moe::Select::Hash; }
  bool hasDeadRows() const {
    return routing.getNonfinite() == moe::NonFinite::NegInf && !isHash();
  }

  void routeRow(mlir::Value token);
  void clearRow(mlir::Value token);

  // From logits to values and keys.
  mlir::Value loadScores(mlir::Value token, mlir::Value expert,
                         mlir::Value mask);
  mlir::Value softmaxRow(mlir::Value token);
  /// exp(x - largest).
  mlir::Value expOfDifference(mlir::Value x, mlir::Value largest);
  mlir::Value finishRow(mlir::Value token);
  mlir::Value finishVector(mlir::Value score, mlir::Value expert,
                           mlir::Value position, mlir::Value mask,
                           mlir::Value largest);

  // From keys to ids; `chosen` and `scales` get a value per slot.
  void select(mlir::Value token);
  void selectBest(mlir::Value token, mlir::Value firstSlot, int64_t count,
                  mlir::Value begin, mlir::Value end);
  void selectByHash(mlir::Value token);
  void selectSparseMixer(mlir::Value token);
  mlir::Value mixerSum(mlir::Value largest);
  void take(mlir::Value token, mlir::Value slot, mlir::Value position,
            mlir::Value value);

  // From values to weights.
  void weighRow(mlir::Value token);
  mlir::Value softmaxSelected(mlir::Value weights, mlir::Value counts);
  mlir::Value renormalize(mlir::Value weights);

  mlir::Value splat(double value) { return emitter.splat(value, layout.lanes); }
  mlir::Value compare(Predicate predicate, mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpFOp::create(b, predicate, x, y);
  }
  mlir::Value choose(mlir::Value condition, mlir::Value x, mlir::Value y) {
    return mlir::arith::SelectOp::create(b, condition, x, y);
  }
  mlir::Value isFinite(mlir::Value x, mlir::Value infinity) {
    return compare(Predicate::OLT, mlir::math::AbsFOp::create(b, x), infinity);
  }
  mlir::Value maskOrNaN(mlir::Value x, mlir::Value mask) {
    return mask ? choose(mask, x, splat(kNaN)) : x;
  }
  mlir::Value toIndex(mlir::Value x) {
    return mlir::arith::IndexCastOp::create(b, b.getIndexType(), x);
  }
  mlir::Value toI32(mlir::Value x) {
    return mlir::arith::IndexCastOp::create(b, b.getI32Type(), x);
  }
  mlir::Value sumOf(mlir::Value vector) {
    return emitter.reduce(mlir::vector::CombiningKind::ADD, vector);
  }
  mlir::Value largestOf(mlir::Value vector) {
    return emitter.reduce(mlir::vector::CombiningKind::MAXNUMF, vector);
  }
  mlir::Value largerOf(mlir::Value x, mlir::Value y) {
    return choose(compare(Predicate::OGT, x, y), x, y);
  }

  tile::TopKOp op;
  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  moe::RoutingAttr routing;
  int64_t numRoutes;
  int64_t topK;
  RowLayout layout;
  KeyTable keys;
  /// Lanes of the vector that holds all slots of a token.
  int64_t slotLanes;
  mlir::Value logits, selectionBias, expertScale, ids, weights;
  /// Scratch: f32 per position, and f32 per slot.
  mlir::Value values, chosen, scales;
  mlir::LogicalResult status = mlir::success();
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_TOPKEMISSION_H
