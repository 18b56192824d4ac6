//===- Adapters.cpp - adapters as further k tiles of sm90.gemm --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Adapters.h"

#include "Schedules/Interface/ScheduleTables.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

std::optional<AdapterTiles> sm90::getAdapterTiles(tile::GemmOp op) {
  if (!op.getShrunk() || getElementTypeOrSelf(op.getShrunk()).isF32())
    return std::nullopt;
  auto type = cast<MemRefType>(op.getMatrices().front().getType());
  return AdapterTiles{type.getDimSize(0), type.getDimSize(3),
                      int64_t(op.getMatrices().size())};
}

/// True if the epilogue adds each update to its sum, ahead of everything else.
static bool addsUpdatesToSums(tile::GemmOp op) {
  Block &body = op.getEpilogue().front();
  auto updates = body.getArguments().take_back(op.getMatrices().size());
  for (auto [i, update] : llvm::enumerate(updates)) {
    Value sum = body.getArgument(i);
    if (!update.hasOneUse() || !sum.hasOneUse())
      return false;
    auto add = dyn_cast<arith::AddFOp>(*update.getUsers().begin());
    if (!add || *sum.getUsers().begin() != add)
      return false;
  }
  return true;
}

std::string sm90::declineAdapters(tile::GemmOp op) {
  std::optional<AdapterTiles> tiles = getAdapterTiles(op);
  if (!tiles)
    return {};
  constexpr llvm::StringLiteral remedy = "; give 'shrunk' as f32";
  Type element = getElementTypeOrSelf(op.getWeight());
  if (op.getInputQuantAttr() || op.getWeightQuantAttr() ||
      element != getElementTypeOrSelf(op.getShrunk()) ||
      element != getElementTypeOrSelf(op.getInput()))
    return ("adapters are further columns of rows and weights of the same type "
            "alone" +
            remedy)
        .str();
  if (op.quantizesResult())
    return ("a gemm that quantizes its results has no adapters" + remedy).str();
  if (tiles->adapters > AdapterTiles::kMaxAdapters)
    return "there are " + number(tiles->adapters) + " adapters, but at most " +
           number(AdapterTiles::kMaxAdapters) +
           " may follow each other along K" + remedy.str();
  if (tiles->rank % AdapterTiles::kChunk)
    return "rank " + number(tiles->rank) + " is no multiple of " +
           number(AdapterTiles::kChunk) + remedy.str();
  if (!addsUpdatesToSums(op))
    return ("the epilogue does more with updates than to add them to sums" +
            remedy)
        .str();
  return {};
}
