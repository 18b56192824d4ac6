//===- TopKEmission.h - routing of rows of experts --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_TOPKEMISSION_H
#define MOEC_LIB_SCHEDULES_ROUTING_TOPKEMISSION_H

#include "TopKSelect.h"

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
    F32 value;
    I32 key;
  };

  /// Computes values and keys of the row. Returns whether a selectable key is
  /// left, or null if that does not matter.
  virtual Flag readRow(Index token) = 0;
  /// Selects ids by keys.
  virtual void selectExperts(Index token) = 0;
  /// Computes weights from the values of the selected experts.
  virtual void weighRow(Index token) = 0;

  bool isHash() const { return routing.getSelect() == moe::Select::Hash; }
  bool hasDeadRows() const {
    return routing.getNonfinite() == moe::NonFinite::NegInf && !isHash();
  }

  // Scores (TopKScores.cpp).
  F32 loadScores(Index token, Index expert, Flag mask);
  F32 scoreOf(F32 logit);
  /// The selection key, as computed by the region.
  F32 keyOf(F32 score, F32 bias);
  /// The selection bias of a vector of experts; null if there is none.
  F32 loadBias(Index expert, Flag mask);
  /// exp(x - largest).
  F32 expOfDifference(F32 x, F32 largest);
  Scored finishScore(F32 score, F32 bias, Flag mask);
  /// The score of a logit by softmax over all experts, from the row's largest
  /// score and its sum of exponentials.
  F32 softmaxOf(F32 logit);
  /// The value of one expert, recomputed from its logit for rows that are not
  /// kept.
  F32 valueAt(Index token, Index expert);
  /// Contribution of a vector of values to the denominator of sparsemixer.
  F32 mixerTerm(F32 value, F32 largest);

  // Ids.
  /// Stores the id of a slot, also for the record; a warp's lanes each store
  /// their own if `isOfLane`.
  void storeId(I32 id, Index token, Index slot, bool isOfLane = false);
  /// The given id of a slot, which is replayed.
  I32 loadGivenId(Index token, Index slot);

  // Hash routing: the expert of a slot, and whether there is one. Requires
  // `hasRow` of a token.
  struct HashRow {
    Index row;
    Flag hasRow;
  };
  HashRow loadHashRow(Index token);
  I32 loadHashId(const HashRow &row, Index slot);
  Flag isExpert(I32 id);

  // Weights. A value counts unless it is NaN.
  F32 weightOf(F32 chosen);
  F32 denominatorOf(F32 sum);
  F32 scaled(F32 weight);
  /// Weights from the values of all slots of a token (NaN in lanes without a
  /// slot) and the scales of their experts (null if there are none), in vectors
  /// of `lanes`.
  F32 weightsOf(F32 values, F32 scales, int64_t lanes);

  F32 splat(double value) { return emitter.splat(value, layout.lanes); }
  Flag isFinite(F32 x) { return x.abs() < kInfinity; }
  F32 largerOf(F32 x, F32 y) { return select(x > y, x, y); }

  tile::TopKOp op;
  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  moe::RoutingAttr routing;
  int64_t numRoutes;
  int64_t topK;
  RowLayout layout;
  mlir::Value logits, selectionBias, expertScale, givenIds, ids, weights,
      recordedIds;
  /// Terms of the row's softmax over all experts, if there is one.
  F32 rowLargest, rowSum;
  mlir::LogicalResult status = mlir::success();

private:
  F32 softmaxSelected(F32 weights, Flag counts, int64_t lanes);
  void routeRow(Index token);
  void clearRow(Index token);
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_TOPKEMISSION_H
