//===- Sm90Consumer.cpp - who multiplies in sm90.contract -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Consumers of the Hopper gemm. A consumer multiplies its part of the weights,
// or of the input rows, with all of the other operand of a tile, at the lowest
// BLOCK_M that holds the tile's rows, and then runs the epilogue.

#include "Sm90Fragments.h"

using namespace mlir;
using namespace moec;

/// Emits all tiles of a gemm. `first`: pipeline state at the start, updated to
/// that at the end.
static LogicalResult emitTiles(Sm90Contract &contract, RingPlace &first) {
  AsyncEmitter &emitter = contract.emitter;
  ImplicitLocOpBuilder &b = contract.b;
  ArrayRef<int64_t> tileRows = contract.shape.tileRows;
  Sm90Products products(contract);
  LogicalResult status = success();
  auto emitHeight = [&](int64_t height, const ContractTile &tile,
                        RingPlace place) {
    ContractPart part = products.getPart(height, tile);
    ContractOperands operands = loadSm90Operands(contract, part);
    // With promotion no registers are left to load epilogue operands early.
    bool isEarly = !contract.shape.promotes;
    if (isEarly)
      loadSm90Scales(contract, part, operands);
    ContractSums sums = products.emit(height, tile, place);
    if (!isEarly)
      loadSm90Scales(contract, part, operands);
    if (failed(emitSm90Epilogue(contract, part, operands, sums)))
      status = failure();
    return sums.end;
  };
  /// Selects the lowest BLOCK_M, from index `i` on, that holds the tile's rows.
  std::function<RingPlace(const ContractTile &, RingPlace, size_t)> choose =
      [&](const ContractTile &tile, RingPlace place, size_t i) -> RingPlace {
    if (i + 1 == tileRows.size())
      return emitHeight(tileRows[i], tile, place);
    Value fits = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, tile.rows,
                                       emitter.i32(tileRows[i]));
    Type i32 = b.getI32Type();
    auto branch = scf::IfOp::create(b, TypeRange{i32, i32}, fits,
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (bool then : {true, false}) {
      b.setInsertionPointToStart(then ? branch.thenBlock()
                                      : branch.elseBlock());
      RingPlace end = then ? emitHeight(tileRows[i], tile, place)
                           : choose(tile, place, i + 1);
      scf::YieldOp::create(b, ValueRange{end.stage, end.parity});
    }
    return {branch.getResult(0), branch.getResult(1)};
  };
  auto emitTile = [&](ContractTile tile, ValueRange carried) {
    RingPlace end = choose(tile, {carried[0], carried[1]}, 0);
    return SmallVector<Value>{end.stage, end.parity};
  };
  SmallVector<Value> last =
      contract.forTiles({first.stage, first.parity}, emitTile,
                        /*draws=*/Value(), /*isConsumer=*/true);
  if (contract.op.getSignals())
    contract.signal();
  first = {last[0], last[1]};
  return status;
}

LogicalResult moec::emitSm90Consumer(Sm90Contracts contracts) {
  RingPlace place = contracts.front().getFirstPlace();
  for (Sm90Contract &contract : contracts)
    if (failed(emitTiles(contract, place)))
      return failure();
  return success();
}
