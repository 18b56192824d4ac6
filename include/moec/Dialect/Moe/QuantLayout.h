//===- QuantLayout.h - where the scales of a tensor lie ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes and indices of quantized matrices (rows x K), computed from
// `#moe.quant`: which elements share a scale, the number of scales, the scale
// of an element, its scope in a gemm, and the bytes of a row. Used by
// verifiers, the interpreter and the emitters of every target; the references
// have their own formulas.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_QUANTLAYOUT_H
#define MOEC_DIALECT_MOE_QUANTLAYOUT_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Support/ScaleGroup.h"

namespace moec::moe {

using moec::ScaleGroup;

ScaleGroup getScaleGroup(QuantAttr quant);

/// Number of scales along K, of `width` elements.
int64_t getNumScaleColumns(QuantAttr quant, int64_t width);

/// Number of scales along the rows of an activation or a weight. Gate and up
/// halves of a weight have separate scales unless they are interleaved.
int64_t getNumScaleRows(QuantAttr quant, int64_t rows,
                        WeightLayoutAttr layout = {});

/// Row index of the scale of weight row `row`, for a weight of `rows` rows.
int64_t getScaleRow(QuantAttr quant, int64_t row, int64_t rows,
                    WeightLayoutAttr layout = {});

/// Column index of the scale of element `element` along K.
int64_t getScaleColumn(QuantAttr quant, int64_t element);

/// The largest number n of elements along K such that each aligned run of n
/// shares a scale in both operands: `kAll` for a whole row. A null quant is an
/// operand without scales.
int64_t getCommonColumns(QuantAttr a, QuantAttr b);

/// Bits of an element of type `storage`.
int64_t getElementBits(mlir::Type storage);

/// Whether rows of quantized values (e4m3 or 8-bit integers) are kept as bf16
/// (`packing = bf16`), which is exact; and the quant that says so, null if the
/// scales of rows allow neither form.
bool areKeptAsBF16(QuantAttr quant);
QuantAttr keepAsBF16(QuantAttr quant);

/// Whether values kept as bf16 are multiplied by their scales, which are powers
/// of two of groups: the products are exact in bf16, and there is no scale
/// tensor.
bool areTimesScales(QuantAttr quant);

/// Bits of an element in memory: 4 if two share a byte, 16 for values kept as
/// bf16, else those of whole bytes.
int64_t getStorageBits(QuantAttr quant);

/// Bytes of a row of `width` elements.
int64_t getRowBytes(QuantAttr quant, int64_t width);

/// Element type of a quantized tensor: the storage, bf16 for values kept as
/// such, or i8 if several values share a byte.
mlir::Type getMemoryType(QuantAttr quant);

/// Number of elements of that type in a row of `width` quantized elements;
/// `width` for a null quant.
int64_t getRowLength(QuantAttr quant, int64_t width);

/// The inverse: quantized elements in a row of `length` memory elements.
int64_t getRowWidth(QuantAttr quant, int64_t length);

/// Whether there is a tensor of zero points or minima, one for each scale, and
/// its element type.
bool hasZeros(QuantAttr quant);
mlir::Type getZeroType(QuantAttr quant);

/// The implied zero point of elements without zero points and minima in memory:
/// 8 for i4, else 0.
int64_t getImpliedZeroPoint(QuantAttr quant);

/// The byte of a row that holds an element, and the lowest of its bits there.
/// For prepacked weights see PrepackedFormat.h.
struct ElementOffset {
  int64_t byte, bit;
};
ElementOffset getElementOffset(QuantAttr quant, int64_t element);

/// Number of second-level scales of a matrix of `rows` rows: 0, 1, 2 if gate
/// and up rows are halves, or one per row of prepacked weights.
int64_t getNumSecondScales(QuantAttr quant, int64_t rows,
                           WeightLayoutAttr layout = {});

/// Index of the second-level scale of gate rows (projection 0) or up rows
/// (projection 1) of a matrix without one per row; 0 without a layout.
int64_t getSecondScale(QuantAttr quant, int64_t projection,
                       WeightLayoutAttr layout);

/// Lower bound of the absolute maximum of a dynamic scale, so that zeros have a
/// scale: 1/512 for a `token` of e4m3, else 1e-10.
float getMinMagnitude(QuantAttr quant);

/// The divisor of an activation's absolute maximum: the largest quantized
/// value, 127 for i8 (-128 is not used), else 448 of e4m3.
float getLargestValue(QuantAttr quant);

/// Whether both operands are block fp8 as in DeepSeek-V3: e4m3 with f32 scales,
/// of 128 x 128 elements of the weight and of 128 elements of an input row.
bool isBlockFp8(QuantAttr input, QuantAttr weight);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_QUANTLAYOUT_H
