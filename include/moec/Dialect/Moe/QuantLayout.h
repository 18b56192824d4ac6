//===- QuantLayout.h - where the scales of a tensor lie ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `#moe.quant` says of a matrix (rows x contracted elements) as numbers:
// which elements share a scale, how many scales there are, and which one is
// whose. Verifiers, the interpreter and the emitters of every target ask here;
// the references have formulas of their own.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_QUANTLAYOUT_H
#define MOEC_DIALECT_MOE_QUANTLAYOUT_H

#include "moec/Dialect/Moe/Moe.h"

namespace moec::moe {

/// Rows and elements of a row that share a scale; `kAll` for all that there
/// are.
struct ScaleGroup {
  static constexpr int64_t kAll = 0;
  int64_t rows = kAll;
  int64_t columns = kAll;

  bool operator==(const ScaleGroup &other) const {
    return rows == other.rows && columns == other.columns;
  }
};

ScaleGroup getScaleGroup(QuantAttr quant);

/// Scales along the contracted dimension, of `width` elements.
int64_t getNumScaleColumns(QuantAttr quant, int64_t width);

/// Scales along the rows of an activation, or of a weight, whose gate and up
/// halves have scales of their own unless the two are interleaved.
int64_t getNumScaleRows(QuantAttr quant, int64_t rows,
                        WeightLayoutAttr layout = {});

/// The row of scales of a row of a weight of `rows` rows.
int64_t getScaleRow(QuantAttr quant, int64_t row, int64_t rows,
                    WeightLayoutAttr layout = {});

/// The column of scales of a contracted element.
int64_t getScaleColumn(QuantAttr quant, int64_t element);

/// The most contracted elements, from a multiple of them on, that share a scale
/// in either operand: `kAll` for all of a row. Null is an operand without
/// scales.
int64_t getCommonColumns(QuantAttr a, QuantAttr b);

/// The least absolute maximum that a dynamic scale is made of, so that zeros
/// have one: 1/512 for a `token`, else 1e-10.
float getLeastMagnitude(QuantAttr quant);

/// Whether two operands are block fp8, as DeepSeek-V3 has it: e4m3 with f32
/// scales, of 128 x 128 weights and of 128 neighbours of a row of the input.
bool isBlockFp8(QuantAttr input, QuantAttr weight);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_QUANTLAYOUT_H
