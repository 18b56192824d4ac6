//===- QuantizedRows.h - rows quantized on their way ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_QUANTIZEDROWS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_QUANTIZEDROWS_H

#include "KernelBuilder/Quantizer.h"
#include "Scales.h"

#include <optional>

namespace moec {

/// Input rows of 16-bit elements that the copying warps quantize, a k tile per
/// warp in turn. Eight lanes have a row of a k tile, which is a scale group
/// unless the scale is given: a
/// lane copies 16 elements to the stage, reads them back when they have
/// arrived, and stores them as one chunk of quantized values.
class Sm90QuantizedRows {
public:
  explicit Sm90QuantizedRows(Sm90Gemm &gemm);

  /// Issues the copies of a k tile. `position`: in the input, of the tile's row
  /// with the lane's number.
  void copy(const Sm90Tile &tile, I32 position, I32 step, I32 stage);
  /// Quantizes a k tile whose copies have arrived. All lanes.
  void quantize(const Sm90Tile &tile, I32 stage);

private:
  static constexpr int64_t kRowsAtOnce = sm90::kQuantizedAtOnce;
  static_assert(kWarp / kRowsAtOnce * sm90::kChunkBytes == kSwizzleBytes);
  static_assert(sm90::kMostQuantizedRows <= kWarp);

  /// The first of each of the tile's rows that are copied at once.
  void forRows(const Sm90Tile &tile, llvm::function_ref<void(I32)> body);
  /// Address of the lane's elements of its first row before quantization.
  mlir::Value getRaw(I32 stage);
  /// Divisor of the lanes' row, which they find together.
  Quantizer::Divisor findDivisor(llvm::ArrayRef<F32> values);
  /// Quotients of a vector by the given scale, rounded.
  mlir::Value encodeByGiven(F32 values);
  /// Quantizes a row, which may be past the tile's end.
  void quantizeRow(const Sm90Tile &tile, I32 stage, I32 row);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const sm90::GemmShape &shape;
  Sm90Scales scales;
  Quantizer quantizer;
  mlir::Value input;
  /// The scale of all rows, if there is one.
  std::optional<Quantizer::GivenScale> given;
  /// The lane's row and its chunk of quantized values.
  I32 ownRow, ownChunk;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_QUANTIZEDROWS_H
