//===- Destinations.cpp - which ranks need a row ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The lanes of a warp hold consecutive chunks, hence chunks of few rows, whose
// ids are contiguous too. Each lane looks up some of the ids, and the results
// are merged by row.

#include "Destinations.h"

#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using Masks = DestinationRanks::Masks;

DestinationRanks::DestinationRanks(tile::ExchangeOp op, ThreadEmitter &emitter,
                                   I64 lane, I64 numRows)
    : op(op), emitter(emitter), lane(lane),
      topK(cast<MemRefType>(op.getIds().front().getType()).getDimSize(1)),
      table(emitter.baseAddress(emitter.operand(op.getDestinations()))),
      idsOfOwnRows(emitter.baseAddress(emitter.operand(op.getIds().front()))) {
  if (op.getIds().size() > 1)
    idsOfAllRows = emitter.baseAddress(emitter.operand(op.getIds().back()));
  auto config = cast<tile::GpuExchangeAttr>(op.getConfigAttr());
  isWanted = emitter.i64(config.getLeastRows() - 1) < numRows;
}

Flag DestinationRanks::has(I32 mask, I64 rank) {
  return ((mask >> rank.toI32()) & 1) != 0;
}

/// An id may have several destination ranks (replicas), or none if it is not an
/// expert's.
Masks DestinationRanks::loadMasks(const Query &query, I64 firstId, I64 endId,
                                  Value heap) {
  constexpr int64_t idBytes = 4;
  ArrayRef<int64_t> shape =
      cast<MemRefType>(op.getDestinations().getType()).getShape();
  int64_t numExperts = shape.front();
  int64_t perExpert = shape.size() > 1 ? shape.back() : 1;
  auto perRank = static_cast<int32_t>(op.getExpertsPerRank().value_or(1));
  auto ranks = int64_t(op.getHeaps().size());
  int64_t count =
      llvm::divideCeil(countRowsOfWarp(query.rowChunks) * topK, kWarp);
  // Absent elements load the heap's header.
  auto loadIf = [&](Flag isThere, Value base, I64 index) {
    Value address = emitter.advance(base, index * idBytes);
    return I32(emitter.b,
               emitter.load(emitter.b.getI32Type(),
                            select(isThere, address, heap), idBytes));
  };
  SmallVector<Flag> isThere;
  SmallVector<I32> ids, found;
  for (int64_t i = 0; i < count; ++i) {
    I64 index = firstId + i * kWarp;
    isThere.push_back(index < endId);
    ids.push_back(loadIf(isThere.back(), query.ids, index));
  }
  for (auto [id, there] : llvm::zip(ids, isThere)) {
    there = there & id.isBelow(numExperts);
    I64 first = id.toI64() * perExpert;
    for (int64_t i = 0; i < perExpert; ++i)
      found.push_back(loadIf(there, table, first + i));
  }
  Masks masks(isThere.size());
  for (auto [i, expert] : llvm::enumerate(found)) {
    size_t id = i / size_t(perExpert);
    Flag isRank = isThere[id] & expert.isBelow(ranks * int64_t(perRank));
    I32 rank = perRank == 1 ? expert : expert / perRank;
    I32 bit = select(isRank, emitter.i32(1) << rank, 0);
    masks[id] = masks[id] ? masks[id] | bit : bit;
  }
  return masks;
}

/// `offset`: that of the chunk from the warp's first row, in chunks.
I32 DestinationRanks::joinMasks(const Query &query, I64 offset,
                                ArrayRef<I32> masks) {
  I32 joined;
  for (int64_t row = 0; row < countRowsOfWarp(query.rowChunks); ++row) {
    I32 ofRow;
    for (auto [i, mask] : llvm::enumerate(masks)) {
      int64_t first = row * topK - int64_t(i) * kWarp;
      if (first >= kWarp || first + topK <= 0)
        continue;
      Flag isOfRow = (emitter.i64(first - 1) < lane) & (lane < first + topK);
      I32 ofLanes = emitter.warpOr(select(isOfRow, mask, 0));
      ofRow = ofRow ? ofRow | ofLanes : ofLanes;
    }
    joined =
        joined ? select(offset < row * query.rowChunks, joined, ofRow) : ofRow;
  }
  return joined;
}

SmallVector<Masks> DestinationRanks::find(ArrayRef<Query> queries, Value heap,
                                          I64 numRows) {
  if (queries.empty())
    return {};
  auto lookUp = [&] {
    struct Found {
      size_t query;
      I64 offset;
      Masks masks;
    };
    SmallVector<Found> found;
    for (auto [i, query] : llvm::enumerate(queries))
      for (I64 chunk : query.chunks) {
        I64 row = (chunk - lane) / query.rowChunks;
        I64 first = (query.firstRow + row) * topK + lane;
        I64 end = (query.firstRow + numRows) * topK;
        I64 offset = chunk - row * query.rowChunks;
        found.push_back({i, offset, loadMasks(query, first, end, heap)});
      }
    SmallVector<Masks> all(queries.size());
    for (const Found &each : found)
      all[each.query].push_back(
          joinMasks(queries[each.query], each.offset, each.masks));
    return all;
  };
  auto useAll = [&] {
    SmallVector<Masks> all;
    I32 ranks = emitter.i32(-1);
    for (const Query &query : queries)
      all.emplace_back(query.chunks.size(), ranks);
    return all;
  };
  return emitter.choose(isWanted, lookUp, useAll);
}
