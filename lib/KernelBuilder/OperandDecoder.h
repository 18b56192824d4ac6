//===- OperandDecoder.h - elements as they are multiplied -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_OPERANDDECODER_H
#define MOEC_LIB_KERNELBUILDER_OPERANDDECODER_H

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

  /// A row, and a byte offset in it.
  struct RowOffset {
    I32 row, bytes;
  };
  /// Where the lane begins to read in 16 rows from `first` on: matrices, and
  /// chunks.
  RowOffset getMatrixOffset(I32 first);
  RowOffset getChunkOffset(I32 first);
  /// Loads the lane's four chunks of 16 rows, `stride` bytes apart, from its
  /// offset on. A chunk, one or several words, has elements of one half of the
  /// rows and of 16 elements along K. The chunks of an input are ordered by K,
  /// then by rows; those of a weight by rows, then by K.
  llvm::SmallVector<mlir::Value> loadChunks(mlir::Value from, int64_t stride);
  /// Decodes half `half` of a chunk's elements into two words of two elements
  /// each.
  std::pair<I32, I32> decode(mlir::Value chunk, int64_t half,
                             ElementFactors factors = {});

  //===--- FMA ---===//

  /// Four neighbours.
  llvm::SmallVector<F32> loadFour(mlir::Value from,
                                  ElementFactors factors = {});

private:
  llvm::SmallVector<mlir::Value> loadQuads(mlir::Value from, int64_t stride);
  llvm::SmallVector<mlir::Value> loadOctets(mlir::Value from, int64_t stride);
  std::pair<I32, I32> decodeQuad(I32 quad);
  std::pair<I32, I32> decodeOctet(I32 octet, int64_t half);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  Elements elements;
  PairDecoder pairs;
  Side side;
  Order order;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_OPERANDDECODER_H
