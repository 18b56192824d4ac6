//===- TopKSelect.h - the best keys of a row --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_TOPKSELECT_H
#define MOEC_LIB_CONVERSION_EMISSION_TOPKSELECT_H

#include "KernelEmitter.h"

#include <limits>

namespace moec {

/// A row of experts as vectors. Groups whose size is no multiple of the lanes
/// are padded, so that an expert's position in scratch memory is not its id.
class RowLayout {
public:
  RowLayout(KernelEmitter &emitter, int64_t numGroups, int64_t groupSize,
            int64_t lanes);

  /// Called with an expert, its position, a mask (null if all lanes are
  /// experts) and the carried values; returns the next carried values.
  using Body = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::Value, mlir::Value, mlir::ValueRange)>;
  /// Runs over all experts in steps of `lanes`, in ascending order.
  llvm::SmallVector<mlir::Value> forRow(mlir::ValueRange init, Body body);
  /// Runs over the experts of one group.
  llvm::SmallVector<mlir::Value> forGroup(mlir::Value group,
                                          mlir::ValueRange init, Body body);

  /// Positions of the whole row, including padding.
  int64_t size() const { return numGroups * stride; }
  /// The expert, an index, at a position.
  mlir::Value expertAt(mlir::Value position);

  KernelEmitter &emitter;
  const int64_t numGroups;
  const int64_t groupSize;
  const int64_t lanes;
  /// Positions per group.
  const int64_t stride;
};

/// Selection keys of a row in scratch memory, as i32 with the signed order of
/// the f32 keys: -0 equals 0, and NaN does not occur. Entries that cannot be
/// selected, including padding, are less than every key.
class KeyTable {
public:
  KeyTable(RowLayout &layout);

  /// The key of entries that cannot be selected; no float maps to it.
  static constexpr int64_t kOutKey = std::numeric_limits<int32_t>::min();

  /// Keys of floats, and the floats of keys; scalars or vectors.
  static mlir::Value fromFloat(KernelEmitter &emitter, mlir::Value value);
  static mlir::Value toFloat(KernelEmitter &emitter, mlir::Value key);

  // Selection, from vectors of keys that were loaded or computed.

  /// The largest key of all lanes, and the smallest position that has it.
  struct Best {
    mlir::Value key, place;
  };
  static Best reduceBest(KernelEmitter &emitter, int64_t lanes,
                         mlir::Value keys, mlir::Value places);
  /// The two largest keys of each lane, in descending order, after inserting
  /// those of `here`.
  static llvm::SmallVector<mlir::Value>
  nextTwo(KernelEmitter &emitter, mlir::Value here, mlir::ValueRange two);
  /// The key of a group from the two largest keys of its lanes.
  static mlir::Value reduceGroup(KernelEmitter &emitter, int64_t lanes,
                                 moe::GroupScore score, mlir::ValueRange two);
  /// Whether the largest key of all lanes is above -inf.
  static mlir::Value isAboveMinusInfinity(KernelEmitter &emitter,
                                          mlir::Value largest);

  /// Stores keys of a full vector at `position`; masked-off lanes are padding.
  void store(mlir::Value keys, mlir::Value position, mlir::Value mask);
  mlir::Value load(mlir::Value position);
  /// Position of the largest key in `begin .. end - 1`, the first of equals.
  mlir::Value argmax(mlir::Value begin, mlir::Value end);
  /// Excludes an entry from further selection.
  void remove(mlir::Value position);

  /// Removes all experts except those of the best groups.
  void keepBestGroups(moe::GroupScore score, int64_t count);

  /// A carried value for the largest key of a row.
  mlir::Value initialLargest();
  mlir::Value nextLargest(mlir::Value largest, mlir::Value keys,
                          mlir::Value mask);

private:
  mlir::Value splatKey(int64_t key);
  mlir::Value maskedKeys(mlir::Value keys, mlir::Value mask);
  mlir::Value argmaxIn(mlir::Value table, mlir::Value begin, mlir::Value end);
  mlir::Value groupKey(mlir::Value group, moe::GroupScore score);

  RowLayout &layout;
  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value keys;
  /// Keys of groups; null for a single group.
  mlir::Value groupKeys;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_TOPKSELECT_H
