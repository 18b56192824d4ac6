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
      : emitter(emitter), lanes(lanes), rows(emitter.operand(op.getRows())),
        position(emitter.operand(op.getPosition())),
        identity(emitter.operand(op.getIdentity())),
        identityWeights(emitter.operand(op.getIdentityWeights())),
        addend(emitter.operand(op.getAddend())),
        result(emitter.operand(op.getResult())),
        slotColumns(op.getSlotColumns()), isUnreduced(op.getUnreduced()),
        isFromUnreduced(op.getFromUnreduced()) {}

  /// Writes `vectors * lanes` columns of a token, or of each of its slots.
  void emitColumns(Index token, Index column, int64_t vectors, Flag mask) {
    if (isUnreduced)
      copySlots(token, column, vectors, mask);
    else
      emitSums(token, column, vectors, mask);
  }

private:
  void copySlots(Index token, Index column, int64_t vectors, Flag mask);
  void emitSums(Index token, Index column, int64_t vectors, Flag mask);

  using Sums = SmallVector<F32>;

  F32 load(Value memref, Index row, Index column, int64_t i, Flag mask) {
    return emitter.loadVector(memref, {row, column + i * lanes}, lanes, mask);
  }
  /// A bias is the same for each token.
  F32 loadAddend(Index token, Index column, int64_t i, Flag mask) {
    if (cast<MemRefType>(addend.getType()).getRank() > 1)
      return load(addend, token, column, i, mask);
    return emitter.loadVector(addend, {column + i * lanes}, lanes, mask);
  }
  Sums addRow(Sums sums, Index row, Index column, Flag mask);
  Sums addIdentity(Sums sums, Index token, Index j, Index column, Flag mask);

  KernelEmitter &emitter;
  int64_t lanes;
  Value rows, position, identity, identityWeights, addend, result;
  int64_t slotColumns;
  bool isUnreduced, isFromUnreduced;
};

GatherReduce::Sums GatherReduce::addRow(Sums sums, Index row, Index column,
                                        Flag mask) {
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = sum + load(rows, row, column, i, mask);
  return sums;
}

GatherReduce::Sums GatherReduce::addIdentity(Sums sums, Index token, Index j,
                                             Index column, Flag mask) {
  F32 weight =
      emitter.splat(emitter.loadF32(identityWeights, {token, j}), lanes);
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = sum + load(identity, token, column, i, mask) * weight;
  return sums;
}

void GatherReduce::copySlots(Index token, Index column, int64_t vectors,
                             Flag mask) {
  emitter.loop(
      emitter.index(0), emitter.index(getColumns(position)), 1, [&](Index j) {
        I32 slot = emitter.loadI32(position, {token, j});
        Sums values = emitter.choose(
            slot >= 0,
            [&] {
              Sums loaded;
              for (int64_t i = 0; i < vectors; ++i)
                loaded.push_back(load(rows, slot.toIndex(), column, i, mask));
              return loaded;
            },
            [&] { return Sums(vectors, emitter.splat(0.0, lanes)); });
        for (auto [i, value] : llvm::enumerate(values))
          emitter.storeVector(value, result,
                              {token, j * slotColumns + column + i * lanes},
                              mask);
      });
}

void GatherReduce::emitSums(Index token, Index column, int64_t vectors,
                            Flag mask) {
  auto addSlot = [&](Index j, Sums before) {
    I32 slot = emitter.loadI32(position, {token, j});
    auto unchanged = [&] { return before; };
    return emitter.choose(
        slot >= 0,
        [&] {
          if (isFromUnreduced)
            return addRow(before, token, j * slotColumns + column, mask);
          return addRow(before, slot.toIndex(), column, mask);
        },
        [&] {
          if (!identity)
            return before;
          return emitter.choose(
              slot == -2,
              [&] { return addIdentity(before, token, j, column, mask); },
              unchanged);
        });
  };
  Sums sums =
      emitter.loop(emitter.index(0), emitter.index(getColumns(position)), 1,
                   Sums(vectors, emitter.splat(0.0, lanes)), addSlot);
  for (auto [i, sum] : llvm::enumerate(sums)) {
    F32 total = sum;
    if (addend)
      total = total + loadAddend(token, column, i, mask);
    emitter.storeVector(total, result, {token, column + i * lanes}, mask);
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
  int64_t columns = op.getSlotColumns();
  Index begin = emitter.index(0);
  Index tiled = emitter.index(columns - columns % tile);
  Index end = emitter.index(columns);

  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitter.loop(range.begin, min(range.end, valid), 1, [&](Index token) {
    emitter.loop(begin, tiled, tile, [&](Index column) {
      reduce.emitColumns(token, column, tile / lanes, {});
    });
    if (columns % tile)
      emitter.forColumns(tiled, end, lanes, columns % tile,
                         [&](Index column, Flag mask) {
                           reduce.emitColumns(token, column, 1, mask);
                         });
  });
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {max(range.begin, valid), range.end},
                       {begin, emitter.index(getColumns(result))}, lanes,
                       getColumns(result));
  return success();
}
