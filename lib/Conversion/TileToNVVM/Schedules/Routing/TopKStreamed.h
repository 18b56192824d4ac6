//===- TopKStreamed.h - routing of rows that do not fit ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKSTREAMED_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKSTREAMED_H

#include "../../../Emission/TopKEmission.h"
#include "../../WarpEmitter.h"

namespace moec {

/// Routing of rows of any length by a warp without scratch memory. Values and
/// keys are recomputed from the logits in every round of the selection; experts
/// up to the latest selected one, in the order of keys, count as selected.
/// Between selection and weights, ids and values of a token's slots are kept in
/// the results; only lane l accesses slots l, l + 32, ...
class TopKStreamed : public TopKEmission {
public:
  TopKStreamed(tile::TopKOp op, WarpEmitter &emitter);

private:
  /// Key and number of an expert or group, i32. Ordered by descending key, then
  /// by ascending number.
  struct Place {
    mlir::Value key, number;
  };
  Place beforeAll();
  static llvm::SmallVector<mlir::Value> unpack(Place place) {
    return {place.key, place.number};
  }
  static Place pack(mlir::ValueRange values) { return {values[0], values[1]}; }
  mlir::Value isAfter(mlir::Value key, mlir::Value number, Place last);

  mlir::Value readRow(mlir::Value token) override;
  void readSoftmax(mlir::Value token);
  /// Scores of 32 experts from `expert` on.
  Scored scoresAt(mlir::Value token, mlir::Value expert, mlir::Value mask);

  void select(mlir::Value token) override;
  /// The best expert after `last`: of all kept groups if `group` is null, else
  /// of that group.
  Place best(mlir::Value token, mlir::Value group, Place last);
  void selectBest(mlir::Value token, mlir::Value group, mlir::Value firstSlot,
                  int64_t count);
  void selectByHash(mlir::Value token);
  void selectSparseMixer(mlir::Value token);
  /// The last group that is kept.
  Place lastGroup(mlir::Value token);
  mlir::Value groupKey(mlir::Value token, mlir::Value group);
  void take(mlir::Value token, mlir::Value slot, mlir::Value id,
            mlir::Value value);

  void weighRow(mlir::Value token) override;
  /// Loops over the lane's slots with `body(slot, chosen, carried)`.
  mlir::Value forSlots(
      mlir::Value token, double init,
      llvm::function_ref<mlir::Value(mlir::Value, mlir::Value, mlir::Value)>
          body);
  mlir::Value expertScaleAt(mlir::Value token, mlir::Value slot);

  mlir::Value bothOf(mlir::Value x, mlir::Value y) {
    return mlir::arith::AndIOp::create(b, x, y);
  }
  mlir::Value compareKeys(mlir::arith::CmpIPredicate predicate, mlir::Value x,
                          mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, predicate, x, y);
  }

  WarpEmitter &warp;
  /// Null if all groups are kept.
  Place floor;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKSTREAMED_H
