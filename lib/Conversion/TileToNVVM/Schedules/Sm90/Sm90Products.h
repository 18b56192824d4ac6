//===- Sm90Products.h - the sums of sm90.contract ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90PRODUCTS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90PRODUCTS_H

#include "Sm90Contract.h"

namespace moec {

/// A consumer's part of a tile.
struct ContractPart {
  int64_t tileHeight;
  /// `tile` has the part's own first row and column, and its rows: at most
  /// `height`, perhaps fewer or none.
  ContractTile tile;
  int64_t height;
};

/// Accumulators of one tile in the thread's registers, and the pipeline state
/// after it.
struct ContractSums {
  RingPlace end;
  /// Per block of the consumer's weights, the thread's f32 in the order of
  /// wgmma accumulators: four of every 8 columns of N.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> blocks;
};

/// Mainloop of a consumer warpgroup: reads stages, multiplies, and releases
/// them.
class Sm90Products {
public:
  explicit Sm90Products(Sm90Contract &contract);

  /// Multiplies a tile with BLOCK_M `height`: all k tiles from `place` on.
  ContractSums emit(int64_t height, const ContractTile &tile, RingPlace place);

  /// The consumer's part of a tile with BLOCK_M `height`.
  ContractPart getPart(int64_t height, const ContractTile &tile);

private:
  /// Operands of a k tile, in the form of `describeTile`.
  struct Factors {
    mlir::Value weights, rows;
  };

  /// Mainloops that accumulate in tensor cores, and with promotion to f32 per k
  /// tile (in Sm90Promoted.cpp).
  ContractSums multiply(int64_t height, RingPlace place);
  ContractSums multiplyPromoted(int64_t height, const ContractTile &tile,
                                RingPlace place);
  /// Mainloop for weights that are decoded into registers (in Sm90Decoded.cpp).
  ContractSums multiplyDecoded(int64_t height, const ContractTile &tile,
                               RingPlace place);
  ContractSums multiplyDecodedPromoted(int64_t height, const ContractTile &tile,
                                       RingPlace place);
  /// Mainloop for weights from registers and few rows (in
  /// Sm90WarpProducts.cpp).
  ContractSums multiplyByWarps(int64_t height, const ContractTile &tile,
                               RingPlace place);
  /// Adds the sums of a k tile to the f32 accumulators, scaled if there are
  /// scales.
  void promote(int64_t height, llvm::MutableArrayRef<mlir::Value> sums,
               llvm::ArrayRef<mlir::Value> products,
               llvm::ArrayRef<mlir::Value> rowScales,
               llvm::ArrayRef<mlir::Value> weightScales);
  /// wgmmas of a k tile and a block.
  int64_t getStepProducts() const;
  /// Operands of a stage, with the first of the consumer's blocks of weights.
  Factors describe(int64_t height, mlir::Value stage);
  /// Operands of block `i`: the M side, and the N side.
  std::pair<mlir::Value, mlir::Value>
  getSides(int64_t height, const Factors &factors, int64_t i);
  /// Releases a stage whose wgmmas are complete.
  void release(mlir::Value stage);
  /// Runs `body` in all k tiles except the first.
  void ifBehindFirst(mlir::Value step, llvm::function_ref<void()> body);
  /// Reduction between two consumers that share a block; each gets the sums of
  /// half of the rows.
  void exchange(llvm::SmallVector<mlir::Value> &all);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  /// The type of weights, and the accumulator type of wgmma.
  mlir::Type element, sumType;
  mlir::Value consumer;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90PRODUCTS_H
