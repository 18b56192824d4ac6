//===- Machine.h - execution of a body op by op -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_INTERPRETER_MACHINE_H
#define MOEC_VERIFY_INTERPRETER_MACHINE_H

#include "Formulas.h"

#include "moec/Dialect/Tile/Tile.h"

#include "llvm/ADT/DenseMap.h"

#include <deque>

namespace moec::interpreter {

/// Executes the ops of one body on its values.
class Machine {
public:
  moert::Status bind(mlir::Value value, const TensorRef &tensor,
                     const std::string &name);
  void setTokens(mlir::Value value, int64_t count) {
    tokensValue = value;
    tokens = count;
  }
  /// Runs the block up to its terminator.
  moert::Status run(mlir::Block &block);
  TensorRef at(mlir::Value value) const { return tensors.find(value)->second; }
  Tensor take(mlir::Value value);

private:
  moert::Status runOp(mlir::Operation &op);
  moert::Status allocate(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  OptionalRef maybe(mlir::Value value) const {
    return value ? OptionalRef(at(value)) : std::nullopt;
  }
  llvm::SmallVector<TensorRef> all(mlir::ValueRange values) const {
    return llvm::map_to_vector(values, [&](mlir::Value v) { return at(v); });
  }
  moert::Status checkTokens(mlir::Value value) const;

  // Each serves a moe op and its tile op, which share operands.
  template <typename OpT>
  moert::Status runRoute(OpT op, int64_t count);
  template <typename OpT>
  moert::Status runPermute(OpT op, int64_t count, mlir::Value offsets,
                           mlir::Value position, mlir::Value source,
                           mlir::Value rowWeight);
  template <typename OpT>
  moert::Status runMatmul(OpT op, int64_t count, const TensorRef &result);
  /// Quantizes the input of a gemm that does so, to temporary tensors.
  moert::Status quantizeInput(tile::GemmOp op, int64_t count,
                              MatmulArguments &arguments);
  template <typename OpT>
  moert::Status runRowMap(OpT op, int64_t count, mlir::Value result);
  template <typename OpT>
  moert::Status runRmsNorm(OpT op, int64_t rows);
  template <typename OpT>
  moert::Status runLoraShrink(OpT op);
  template <typename OpT>
  moert::Status runPlaceIds(OpT op, int64_t count, mlir::Value result);
  template <typename OpT>
  moert::Status runQuantize(OpT op, int64_t rows);
  template <typename OpT>
  moert::Status runPrepack(OpT op);
  template <typename OpT>
  moert::Status runUnpermute(OpT op, int64_t count, mlir::Value result);

  moert::Status run(tile::GemmOp op);
  moert::Status run(tile::GatherRowsOp op);
  moert::Status run(tile::LoraUpdateOp op);
  moert::Status run(tile::CountSlotsOp op);
  moert::Status run(moe::RouteOp op);
  moert::Status run(moe::PermuteOp op);
  moert::Status run(moe::GroupedMatmulOp op);
  moert::Status run(moe::GatherRowsOp op);
  moert::Status run(moe::RowMapOp op);
  moert::Status run(moe::RmsNormOp op);
  moert::Status run(moe::LoraShrinkOp op);
  moert::Status run(moe::PlaceIdsOp op);
  moert::Status run(moe::TensorScaleOp op);
  moert::Status run(moe::PrepackOp op);
  moert::Status run(moe::QuantizeOp op);
  moert::Status run(moe::UnpermuteOp op);

  llvm::DenseMap<mlir::Value, TensorRef> tensors;
  /// Tensors made here; a deque keeps their addresses.
  std::deque<std::pair<mlir::Value, Tensor>> owned;
  mlir::Value tokensValue;
  int64_t tokens = 0;
};

} // namespace moec::interpreter

#endif // MOEC_VERIFY_INTERPRETER_MACHINE_H
