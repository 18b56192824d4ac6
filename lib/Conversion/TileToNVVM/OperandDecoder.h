//===- OperandDecoder.h - elements as they are multiplied -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H

#include "PairDecoder.h"
#include "ThreadEmitter.h"

namespace moec {

/// Factor and offset of an element, applied before it becomes an operand: words
/// of two for tensor cores, f32 for FMAs; null for none.
struct ElementFactors {
  mlir::Value factor, offset;
};

/// Loads elements of an operand from shared memory to registers, in the type in
/// which they are multiplied. Only this class and `PairDecoder` know the stored
/// formats.
///
/// For tensor cores it processes 16 rows of `kDecodedColumns` elements. Their
/// assignment to lanes is free as long as inputs and weights agree, because the
/// order of terms does not matter:
///
/// - `Quads`: four neighbours of 16 elements of a row, which become two of the
///   first and two of the second half of an mma's K.
/// - `Octets`: eight neighbours of 32, for a word of 4-bit elements. Elements i
///   and i + 4 are one of the four pairs of two mmas, the two first ones of the
///   first.
class OperandDecoder {
public:
  enum class Side { Input, Weight };
  enum class Order { Quads, Octets };

  /// `quant` is null for an operand that is not quantized.
  OperandDecoder(ThreadEmitter &emitter, moe::QuantAttr quant,
                 ComputeType compute, Float8 floats, Side side, Order order);

  /// Whether elements are stored in the type in which they are multiplied.
  bool isPlain() const { return elements == Elements::Plain; }

  //===--- Tensor cores ---===//

  /// The lane's row among 16 from `first` on, and its byte offset in that row;
  /// for matrices, and for chunks; i32.
  std::pair<mlir::Value, mlir::Value> getMatrixPlace(mlir::Value first);
  std::pair<mlir::Value, mlir::Value> getPiecePlace(mlir::Value first);
  /// The lane's four pieces of 16 rows, `stride` bytes apart, from its place in
  /// them, of half a row of elements each: of an input both halves of the rows
  /// come together, then the other 16 elements, of a weight both 16 elements,
  /// then the other half of the rows.
  llvm::SmallVector<mlir::Value> loadPieces(mlir::Value from, int64_t stride);
  /// Decodes half `half` of a chunk's elements into two words of two elements
  /// each; i32.
  std::pair<mlir::Value, mlir::Value> decode(mlir::Value piece, int64_t half,
                                             ElementFactors factors = {});

  //===--- FMA ---===//

  /// Four neighbours as f32.
  llvm::SmallVector<mlir::Value> loadFour(mlir::Value from,
                                          ElementFactors factors = {});

private:
  mlir::Value add(mlir::Value x, mlir::Value y);
  llvm::SmallVector<mlir::Value> loadQuads(mlir::Value from, int64_t stride);
  llvm::SmallVector<mlir::Value> loadOctets(mlir::Value from, int64_t stride);
  std::pair<mlir::Value, mlir::Value> decodeQuad(mlir::Value quad);
  std::pair<mlir::Value, mlir::Value> decodeOctet(mlir::Value octet,
                                                  int64_t half);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  Elements elements;
  PairDecoder pairs;
  Side side;
  Order order;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H
