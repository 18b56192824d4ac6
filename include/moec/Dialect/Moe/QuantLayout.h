//===- QuantLayout.h - where the scales of a tensor lie ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `#moe.quant` says of a matrix (rows x contracted elements) as numbers:
// which elements share a scale, how many scales there are, which one is whose,
// where in a product it is applied, and how many bytes a row takes. Verifiers,
// the interpreter and the emitters of every target ask here; the references
// have formulas of their own.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_QUANTLAYOUT_H
#define MOEC_DIALECT_MOE_QUANTLAYOUT_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Support/ScaleGroup.h"

namespace moec::moe {

using moec::ScaleGroup;

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

/// Bits of an element of a storage.
int64_t getElementBits(mlir::Type storage);

/// Whether each code of a row is kept as the bf16 of its number (`packing =
/// bf16`), which all e4m3 and integers of 8 bits have; and what says so, null
/// of rows whose scales go with neither.
bool areKeptAsBF16(QuantAttr quant);
QuantAttr keepAsBF16(QuantAttr quant);

/// Whether these numbers are times their scales, which are powers of two of
/// groups: they are still bf16, and there are no scales beside them.
bool areTimesScales(QuantAttr quant);

/// Bits that an element takes in memory: 4 where two lie in a byte, 16 of codes
/// that are kept as bf16, else those of whole bytes.
int64_t getStorageBits(QuantAttr quant);

/// Bytes of a row of `width` elements.
int64_t getRowBytes(QuantAttr quant, int64_t width);

/// What a tensor that is quantized so has elements of: the storage, bf16 where
/// codes are kept as such, or bytes where several of them lie in one.
mlir::Type getMemoryType(QuantAttr quant);

/// Elements of that type in a row of `width` quantized elements; of one that
/// is not quantized (null) `width`.
int64_t getRowLength(QuantAttr quant, int64_t width);

/// And the other way round: what a row of so many stands for.
int64_t getRowWidth(QuantAttr quant, int64_t length);

/// Whether a tensor of zero points or minima, one for each scale, belongs to
/// the elements, and what it has elements of.
bool hasZeros(QuantAttr quant);
mlir::Type getZeroType(QuantAttr quant);

/// What every element stands for minus this, where there are no zero points
/// and no minima in memory: 8 of i4, else 0.
int64_t getImpliedZeroPoint(QuantAttr quant);

/// The byte of a row that holds an element, and the lowest of its bits there;
/// where they are in the order of `fragments`, Fragments.h says it.
struct ElementPlace {
  int64_t byte, bit;
};
ElementPlace getElementPlace(QuantAttr quant, int64_t element);

/// Second-level scales of a matrix of `rows`: 0, 1, 2 where gate and up rows
/// are halves, or one of each row of `fragments`.
int64_t getNumSecondScales(QuantAttr quant, int64_t rows,
                           WeightLayoutAttr layout = {});

/// The one of gate rows (projection 0) or up rows (projection 1) of a matrix
/// that has not one of each row; without a layout 0.
int64_t getSecondScale(QuantAttr quant, int64_t projection,
                       WeightLayoutAttr layout);

/// The least absolute maximum that a dynamic scale is made of, so that zeros
/// have one: 1/512 for a `token` of e4m3, else 1e-10.
float getMinMagnitude(QuantAttr quant);

/// The largest code of a quantized activation, by which its absolute maximum is
/// divided for a scale: 127 of i8, which has no -128 then, else 448 of e4m3.
float getLargestCode(QuantAttr quant);

/// Whether two operands are block fp8, as DeepSeek-V3 has it: e4m3 with f32
/// scales, of 128 x 128 weights and of 128 neighbours of a row of the input.
bool isBlockFp8(QuantAttr input, QuantAttr weight);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_QUANTLAYOUT_H
