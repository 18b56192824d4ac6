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

/// Routing of tokens by one CTA: `rows` tokens, one after the other, with a
/// row's experts in vectors of `lanes`. The order of selection is total, so
/// that only the rounding of scores and weights depends on the schedule. The
/// formulas are here; a derived class defines where values and keys of a row
/// are stored.
class TopKEmission {
public:
  virtual ~TopKEmission() = default;

  /// Routes every `step`-th token of the range.
  mlir::LogicalResult run(RowRange range, int64_t step = 1);

protected:
  TopKEmission(tile::TopKOp op, KernelEmitter &emitter, int64_t lanes);

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  using Predicate = mlir::arith::CmpFPredicate;

  /// A vector of experts: values (NaN if they count as 0, and in padding), and
  /// keys in the form of KeyTable (null if none are compared).
  struct Scored {
    mlir::Value value, key;
  };

  /// Computes values and keys of the row. Returns whether a selectable key is
  /// left, or null if that does not matter.
  virtual mlir::Value readRow(mlir::Value token) = 0;
  /// Selects ids by keys.
  virtual void select(mlir::Value token) = 0;
  /// Computes weights from the values of the selected experts.
  virtual void weighRow(mlir::Value token) = 0;

  bool isHash() const { return routing.getSelect() == moe::Select::Hash; }
  bool hasDeadRows() const {
    return routing.getNonfinite() == moe::NonFinite::NegInf && !isHash();
  }

  // Scores (TopKScores.cpp).
  mlir::Value loadScores(mlir::Value token, mlir::Value expert,
                         mlir::Value mask);
  mlir::Value scoreOf(mlir::Value logit);
  /// The selection key, as computed by the region.
  mlir::Value keyOf(mlir::Value score, mlir::Value bias);
  /// The selection bias of a vector of experts; null if there is none.
  mlir::Value loadBias(mlir::Value expert, mlir::Value mask);
  /// exp(x - largest).
  mlir::Value expOfDifference(mlir::Value x, mlir::Value largest);
  Scored finishScore(mlir::Value score, mlir::Value bias, mlir::Value mask);
  /// The score of a logit by softmax over all experts, from the row's largest
  /// score and its sum of exponentials.
  mlir::Value softmaxOf(mlir::Value logit);
  /// The value of one expert, recomputed from its logit for rows that are not
  /// kept.
  mlir::Value valueAt(mlir::Value token, mlir::Value expert);
  /// Contribution of a vector of values to the denominator of sparsemixer.
  mlir::Value mixerTerm(mlir::Value value, mlir::Value largest);

  // Hash routing: the expert of a slot, i32, and whether there is one. Requires
  // `hasRow` of a token.
  struct HashRow {
    mlir::Value row, hasRow;
  };
  HashRow loadHashRow(mlir::Value token);
  mlir::Value loadHashId(const HashRow &row, mlir::Value slot);
  mlir::Value isExpert(mlir::Value id);

  // Weights. A value counts unless it is NaN.
  mlir::Value countsOf(mlir::Value chosen) {
    return compare(Predicate::ORD, chosen, chosen);
  }
  mlir::Value weightOf(mlir::Value chosen);
  mlir::Value denominatorOf(mlir::Value sum);
  mlir::Value scaled(mlir::Value weight);
  /// Weights from the values of all slots of a token (NaN in lanes without a
  /// slot) and the scales of their experts (null if there are none), in vectors
  /// of `lanes`.
  mlir::Value weightsOf(mlir::Value values, mlir::Value scales, int64_t lanes);

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
  mlir::Value logits, selectionBias, expertScale, ids, weights;
  /// Terms of the row's softmax over all experts, if there is one.
  mlir::Value rowLargest, rowSum;
  mlir::LogicalResult status = mlir::success();

private:
  mlir::Value softmaxSelected(mlir::Value weights, mlir::Value counts,
                              int64_t lanes);
  void routeRow(mlir::Value token);
  void clearRow(mlir::Value token);
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_TOPKEMISSION_H
