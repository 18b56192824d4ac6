//===- OperandDecoder.h - elements as they are multiplied -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H

#include "Float8.h"
#include "ThreadEmitter.h"
#include "moec/Analysis/ProductTypes.h"

namespace moec {

/// Brings elements of an operand from shared memory to registers, as the type
/// in which they are multiplied. What a format is in memory is known here
/// alone: plain elements of the compute type, or e4m3.
///
/// For tensor cores it goes by 16 rows of `kDecodedColumns` elements. Of 16
/// elements of a row a lane gets four neighbours, a quad, which are taken for
/// two of the first and two of the second half of a product's depth: in inputs
/// and weights alike, so that the order does not matter.
class OperandDecoder {
public:
  enum class Side { Input, Weight };

  OperandDecoder(ThreadEmitter &emitter, mlir::Type storage,
                 ComputeType compute, Float8 floats, Side side);

  /// Whether elements are in memory what they are multiplied as.
  bool isPlain() const { return storage == compute; }

  //===--- Tensor cores ---===//

  /// The lane's row of 16 from `first` on, and how many bytes on in that row it
  /// reads, of matrices, and of quads; i32.
  std::pair<mlir::Value, mlir::Value> getMatrixPlace(mlir::Value first);
  std::pair<mlir::Value, mlir::Value> getQuadPlace(mlir::Value first);
  /// The lane's four quads of 16 rows, `stride` bytes apart, from its place in
  /// them: of an input both halves of the rows come together, then the other 16
  /// elements, of a weight both 16 elements, then the other half of the rows.
  llvm::SmallVector<mlir::Value> loadQuads(mlir::Value from, int64_t stride);
  /// A quad as two words of two elements each; i32.
  std::pair<mlir::Value, mlir::Value> decode(mlir::Value quad);

  //===--- FMA ---===//

  /// Four neighbours as f32.
  llvm::SmallVector<mlir::Value> loadFour(mlir::Value from);

private:
  mlir::Value add(mlir::Value x, mlir::Value y);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Type storage, compute;
  Float8 floats;
  Side side;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_OPERANDDECODER_H
