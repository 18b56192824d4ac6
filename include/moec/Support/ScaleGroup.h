//===- ScaleGroup.h - which elements share a scale --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The scales of a quantized matrix (rows x contracted elements) as numbers: how
// many there are, and which one is whose. Signatures of layers ask here, and
// QuantLayout.h on behalf of the IR.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_SCALEGROUP_H
#define MOEC_SUPPORT_SCALEGROUP_H

#include "llvm/Support/ErrorHandling.h"

#include <cstdint>

namespace moec {

/// Rows and elements of a row that share a scale; `kAll` for all that there
/// are. The last group of either dimension may be smaller.
struct ScaleGroup {
  static constexpr int64_t kAll = 0;
  int64_t rows = kAll;
  int64_t columns = kAll;

  /// That of a granularity, whose values a layer's spec and the IR have each;
  /// `blockRows` and `blockColumns` are those of a group or block.
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

  /// Scales along the contracted dimension, of `width` elements.
  int64_t countColumns(int64_t width) const { return count(width, columns); }
  /// Scales along `numRows` rows; with `hasHalves` those of a first product,
  /// whose gate and up rows are two halves with scales of their own.
  int64_t countRows(int64_t numRows, bool hasHalves) const {
    return hasHalves ? 2 * count(numRows / 2, rows) : count(numRows, rows);
  }
  /// The column of scales of a contracted element.
  int64_t columnOf(int64_t element) const { return find(element, columns); }
  /// The row of scales of one of `numRows` rows.
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
