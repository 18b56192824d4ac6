//===- GatherReduce.cpp - the schedule cpu.gather_reduce --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The combine on CPUs. A CTA owns some tokens. Tiles of columns are held in
// registers while the token's rows are added in order of j.

#include "Emit.h"

using namespace mlir;
using namespace moec;

namespace {

/// Writes the sum of one token's rows, a tile of columns at a time.
class GatherReduce {
public:
  GatherReduce(tile::GatherReduceOp op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), b(emitter.b), lanes(lanes),
        rows(emitter.operand(op.getRows())),
        position(emitter.operand(op.getPosition())),
        identity(emitter.operand(op.getIdentity())),
        identityWeights(emitter.operand(op.getIdentityWeights())),
        addend(emitter.operand(op.getAddend())),
        result(emitter.operand(op.getResult())) {}

  /// Writes `vectors * lanes` columns of a token.
  void emitColumns(Value token, Value column, int64_t vectors, Value mask);

private:
  Value load(Value memref, Value row, Value column, int64_t i, Value mask) {
    return emitter.loadVector(memref, {row, emitter.add(column, i * lanes)},
                              lanes, mask);
  }
  SmallVector<Value> addRow(ValueRange sums, Value row, Value column,
                            Value mask);
  SmallVector<Value> addIdentity(ValueRange sums, Value token, Value j,
                                 Value column, Value mask);

  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t lanes;
  Value rows, position, identity, identityWeights, addend, result;
};

SmallVector<Value> GatherReduce::addRow(ValueRange sums, Value row,
                                        Value column, Value mask) {
  SmallVector<Value> next;
  for (auto [i, sum] : llvm::enumerate(sums))
    next.push_back(
        arith::AddFOp::create(b, sum, load(rows, row, column, i, mask)));
  return next;
}

SmallVector<Value> GatherReduce::addIdentity(ValueRange sums, Value token,
                                             Value j, Value column,
                                             Value mask) {
  Value weight =
      emitter.splat(emitter.loadF32(identityWeights, {token, j}), lanes);
  SmallVector<Value> next;
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value x = load(identity, token, column, i, mask);
    next.push_back(
        arith::AddFOp::create(b, sum, arith::MulFOp::create(b, x, weight)));
  }
  return next;
}

void GatherReduce::emitColumns(Value token, Value column, int64_t vectors,
                               Value mask) {
  SmallVector<Value> zeros(vectors, emitter.splat(0.0, lanes));
  SmallVector<Type> types(vectors, emitter.vectorType(b.getF32Type(), lanes));
  auto body = [&](Value j, ValueRange sums) {
    Value slot = emitter.loadI32(position, {token, j});
    Value isRow = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, slot,
                                        emitter.i32(0));
    auto unchanged = [&] { return SmallVector<Value>(sums); };
    auto other = [&] {
      if (!identity)
        return unchanged();
      Value isIdentity = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                               slot, emitter.i32(-2));
      return emitter.choose(
          isIdentity, types,
          [&] { return addIdentity(sums, token, j, column, mask); }, unchanged);
    };
    return emitter.choose(
        isRow, types,
        [&] {
          Value row = arith::IndexCastOp::create(b, b.getIndexType(), slot);
          return addRow(sums, row, column, mask);
        },
        other);
  };
  SmallVector<Value> sums = emitter.forLoop(
      emitter.index(0), emitter.index(getColumns(position)), 1, zeros, body);
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value total = sum;
    if (addend)
      total =
          arith::AddFOp::create(b, total, load(addend, token, column, i, mask));
    emitter.storeVector(total, result, {token, emitter.add(column, i * lanes)},
                        mask);
  }
}

} // namespace

LogicalResult moec::emitGatherReduce(tile::GatherReduceOp op,
                                     KernelEmitter &emitter) {
  auto config =
      requireConfig<tile::CpuGatherReduceAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())) ||
      failed(requireLanes(op, config->getLanes())))
    return failure();
  int64_t lanes = config->getLanes();
  int64_t tile =
      config->getRegisterColumns() ? config->getRegisterColumns() : lanes;
  if (tile % lanes)
    return op.emitOpError("has a config whose register_columns = ")
           << tile << " is not a multiple of lanes = " << lanes;

  GatherReduce reduce(op, emitter, lanes);
  Value result = emitter.operand(op.getResult());
  int64_t columns = cast<MemRefType>(result.getType()).getDimSize(1);
  Index begin = emitter.index(0);
  Value tiled = emitter.index(columns - columns % tile);
  Index end = emitter.index(columns);

  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitter.forLoop(
      range.begin, emitter.min(range.end, valid), 1, [&](Value token) {
        emitter.forLoop(begin, tiled, tile, [&](Value column) {
          reduce.emitColumns(token, column, tile / lanes, {});
        });
        if (columns % tile)
          emitter.forColumns(tiled, end, lanes, columns % tile,
                             [&](Value column, Value mask) {
                               reduce.emitColumns(token, column, 1, mask);
                             });
      });
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {max(range.begin, valid), range.end},
                       {begin, end}, lanes, columns);
  return success();
}
