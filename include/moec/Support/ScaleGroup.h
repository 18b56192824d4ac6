//===- ScaleGroup.h - groups of elements with one scale ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Number and index of the scales of a quantized matrix (rows x K). Used by
// layer signatures, and by QuantLayout.h for the IR.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_SCALEGROUP_H
#define MOEC_SUPPORT_SCALEGROUP_H

#include "llvm/Support/ErrorHandling.h"

#include <cstdint>

namespace moec {

/// Rows and K elements that share a scale; `kAll` means all of them. The last
/// group of either dimension may be smaller.
struct ScaleGroup {
  static constexpr int64_t kAll = 0;
  int64_t rows = kAll;
  int64_t columns = kAll;

  /// The group of a granularity, an enum that the layer spec and the IR define
  /// separately. `blockRows` and `blockColumns` are those of a group or block.
  template <typename Granularity>
  static ScaleGroup of(Granularity granularity, int64_t blockRows,
                       int64_t blockColumns) {
    switch (granularity) {
    case Granularity::Tensor:
      return {kAll, kAll};
    case Granularity::Channel:
    case Granularity::Token:
      return {1, kAll};
    case Granularity::Group:
    case Granularity::Block:
      return {blockRows, blockColumns};
    }
    llvm_unreachable("every granularity is listed");
  }

  bool operator==(const ScaleGroup &other) const {
    return rows == other.rows && columns == other.columns;
  }

  /// Number of scales along K, of `width` elements.
  int64_t countColumns(int64_t width) const { return count(width, columns); }
  /// Number of scales along `numRows` rows. With `hasHalves` the gate rows and
  /// the up rows of a gate and up gemm have separate scales.
  int64_t countRows(int64_t numRows, bool hasHalves) const {
    return hasHalves ? 2 * count(numRows / 2, rows) : count(numRows, rows);
  }
  /// Column of the scale of a K element.
  int64_t columnOf(int64_t element) const { return find(element, columns); }
  /// Row of the scale of one of `numRows` rows.
  int64_t rowOf(int64_t row, int64_t numRows, bool hasHalves) const {
    if (!hasHalves)
      return find(row, rows);
    int64_t half = numRows / 2;
    return row / half * count(half, rows) + find(row % half, rows);
  }

private:
  static int64_t count(int64_t size, int64_t group) {
    return group == kAll ? 1 : (size + group - 1) / group;
  }
  static int64_t find(int64_t at, int64_t group) {
    return group == kAll ? 0 : at / group;
  }
};

} // namespace moec

#endif // MOEC_SUPPORT_SCALEGROUP_H
