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

/// What a consumer has of a tile of some height.
struct ContractPart {
  int64_t tileHeight;
  /// With its own first row and column, and rows: at most `height`, perhaps
  /// none or fewer.
  ContractTile tile;
  int64_t height;
};

/// The sums of one tile in the thread's registers, and the place in the ring
/// behind it.
struct ContractSums {
  RingPlace end;
  /// For each block of the consumer's weights the f32 of the thread, where
  /// tensor cores leave them: four of every 8 of the tile's width.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> blocks;
};

/// What a warpgroup that multiplies reads, and how it says that it has.
class Sm90Products {
public:
  explicit Sm90Products(Sm90Contract &contract);

  /// Multiplies a tile of that height; all steps from `place` on.
  ContractSums emit(int64_t height, const ContractTile &tile, RingPlace place);

  /// The consumer's part of a tile of that height.
  ContractPart getPart(int64_t height, const ContractTile &tile);

private:
  /// What tensor cores multiply in a step, as `describeTile` has it.
  struct Factors {
    mlir::Value weights, rows;
  };

  /// The sums as tensor cores make them, and those of steps, added in f32 (in
  /// Sm90Promoted.cpp).
  ContractSums multiply(int64_t height, RingPlace place);
  ContractSums multiplyPromoted(int64_t height, const ContractTile &tile,
                                RingPlace place);
  /// The sums of weights that are decoded to registers (in Sm90Decoded.cpp).
  ContractSums multiplyDecoded(int64_t height, const ContractTile &tile,
                               RingPlace place);
  ContractSums multiplyDecodedPromoted(int64_t height, const ContractTile &tile,
                                       RingPlace place);
  /// The same of few rows (in Sm90WarpProducts.cpp).
  ContractSums multiplyByWarps(int64_t height, const ContractTile &tile,
                               RingPlace place);
  /// Without scales if there are none.
  void promote(int64_t height, llvm::MutableArrayRef<mlir::Value> sums,
               llvm::ArrayRef<mlir::Value> products,
               llvm::ArrayRef<mlir::Value> rowScales,
               llvm::ArrayRef<mlir::Value> weightScales);
  /// Products of a step and a block.
  int64_t getStepProducts() const;
  /// A stage, with the first of the consumer's blocks of weights.
  Factors describe(int64_t height, mlir::Value stage);
  /// The same with block `i`: the side of 64, and the other.
  std::pair<mlir::Value, mlir::Value>
  getSides(int64_t height, const Factors &factors, int64_t i);
  /// Gives a stage back, whose products are done.
  void release(mlir::Value stage);
  /// `body` in all steps of a tile but the first.
  void ifBehindFirst(mlir::Value step, llvm::function_ref<void()> body);
  /// Adds up what two consumers have that share a block, the sums of half
  /// of the rows in each.
  void exchange(llvm::SmallVector<mlir::Value> &all);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  /// The type of weights, and that of sums as tensor cores make them.
  mlir::Type element, sumType;
  mlir::Value consumer;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90PRODUCTS_H
