//===- Shape.cpp - shape of a gemm of sm90.gemm -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Shape.h"
#include "Schedules/Interface/ScheduleTables.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

GemmShape::GemmShape(tile::GemmOp op, tile::ConfigAttr config)
    : asked(op), tiles(asked, cast<tile::Sm90GemmAttr>(config)),
      layout(asked, tiles), budget(asked, tiles) {}

/// Warps that copy k tiles in turn.
static constexpr int64_t kTurns = kRowThreads / kWarp;

int64_t sm90::getTurnStages(const TileShape &tile) {
  int64_t kTiles = tile.getKTiles();
  return kTiles > kTurns ? kTurns + kTiles % kTurns : kTurns;
}

int64_t GemmShape::getRowTurns() const {
  constexpr int64_t fewRows = 16;
  if (asked.quantizesInput)
    return kTurns;
  bool areAlone = !asked.adapters && tiles.splitK == 1;
  return tiles.getMaxBlockM() <= fewRows && areAlone &&
                 tiles.stages >= getTurnStages(tiles)
             ? kTurns
             : 1;
}

void GemmShape::shareWith(const GemmShape &other) {
  layout.shareWith(other.layout);
  budget.shareWith(other.budget);
}

std::string GemmShape::whyApart(const GemmShape &other) const {
  if (asked.copiesScales() != other.asked.copiesScales())
    return "only one of them has scales that are copied with each k tile";
  if (other.asked.copiesScales() && other.tiles.mapRows)
    return "the second has map_rows = true, but the threads that copy its "
           "scales wait for its rows; give map_rows = false";
  if (asked.adapters || other.asked.adapters)
    return "adapters are copied by threads that do not wait for other CTAs";
  if (asked.isPrepacked() || other.asked.isPrepacked())
    return "each gemm with prepacked weights has its own number of scales "
           "behind the pipeline";
  if (tiles.mapRows)
    return "the first has map_rows = true, but the pipeline's barriers count "
           "the threads that copy its rows";
  if (tiles.stages != other.tiles.stages)
    return "stages = " + number(tiles.stages) + " and " +
           number(other.tiles.stages) + " for one pipeline";
  if (tiles.blockM != other.tiles.blockM ||
      tiles.noSwapAB != other.tiles.noSwapAB)
    return "their block_m differ, but they share one tile table";
  if (asked.groups != other.asked.groups || !asked.isGrouped ||
      !other.asked.isGrouped ||
      asked.minGroupRows != other.asked.minGroupRows ||
      asked.maxGroupRows != other.asked.maxGroupRows)
    return "their groups differ";
  return {};
}

tile::GemmOp sm90::getPartner(tile::GemmOp op) {
  for (auto other : op->getBlock()->getOps<tile::GemmOp>())
    if (other != op &&
        ((op.getSignals() && other.getAwaits() == op.getSignals()) ||
         (op.getAwaits() && other.getSignals() == op.getAwaits())))
      return other;
  return nullptr;
}

tile::QuantizeOp sm90::getQuantization(tile::GemmOp op) {
  return op.getAwaits() ? dyn_cast_or_null<tile::QuantizeOp>(op->getPrevNode())
                        : nullptr;
}

bool sm90::awaitsRows(tile::GemmOp op) {
  return op.getAwaits() && op.getShrunk() && !getPartner(op) &&
         !getQuantization(op);
}

tile::GatherReduceOp sm90::getSums(tile::GemmOp op) {
  auto sums = dyn_cast_or_null<tile::GatherReduceOp>(op->getNextNode());
  return sums && sums.getAwaits() && sums.getAwaits() == op.getSignals()
             ? sums
             : nullptr;
}

int64_t sm90::getTileIncrement(tile::GemmOp op) {
  return getQuantization(op) || getSums(op) ? kTileIncrement : 1;
}

int64_t sm90::getChunkBytes(int64_t share) {
  constexpr int64_t most = 256;
  int64_t chunks = (share + most - 1) / most;
  while (share % chunks)
    ++chunks;
  return share / chunks;
}

/// Index of a memref among the kernel's arguments.
static int64_t getArgumentNumber(Value memref) {
  return cast<BlockArgument>(memref).getArgNumber();
}

/// Adds the tensor maps of input rows, if any.
static void addRowMaps(tile::GemmOp op, const GemmShape &shape,
                       SmallVector<tile::TensorMapAttr> &maps) {
  if (!shape.tile().mapRows)
    return;
  int64_t rows = cast<MemRefType>(op.getInput().getType()).getDimSize(0);
  int64_t swizzleRows = shape.tile().swizzleRows,
          width = shape.tile().blockK / swizzleRows;
  for (int64_t blockM : shape.tile().blockM) {
    SmallVector<int64_t> sizes{rows, shape.problem().sizeK}, along{0, 1},
        steps{1, 1}, box{blockM, shape.tile().blockK};
    // In shared memory, rows are as wide as the swizzle.
    if (swizzleRows > 1) {
      sizes = {shape.problem().sizeK / width, rows, width};
      along = {1, 0, 1};
      steps = {width, 1, 1};
      box = {swizzleRows, blockM, width};
    }
    maps.push_back(tile::TensorMapAttr::get(
        op.getContext(), getArgumentNumber(op.getInput()), sizes, along, steps,
        box, shape.problem().swizzleBytes));
  }
}

/// The tensor map of prepacked weights or of their scales. Dimensions: matrix,
/// block of 64 rows, half of a block, bytes. The `share` bytes that a half has
/// of a packed tile are contiguous, those of successive packed tiles follow
/// each other across the ends of rows; the innermost extent of a box is at most
/// 256 bytes. `tiles`: packed tiles with the same share.
static tile::TensorMapAttr getPackedTileMap(tile::GemmOp op,
                                            const GemmShape &shape,
                                            Value operand, int64_t share,
                                            int64_t tiles) {
  using moe::PrepackedFormat;
  int64_t rows = shape.problem().weightsPerColumn * shape.problem().columns;
  int64_t chunk = getChunkBytes(share);
  int64_t row = shape.problem().isGrouped ? 1 : 0;
  auto getRow = [&](int64_t block, int64_t tileHalf) {
    return PrepackedFormat::getHalfRow(block, tileHalf, rows,
                                       op.getLayoutAttr());
  };
  MapDimensions view;
  if (shape.problem().isGrouped)
    view.add(shape.problem().groups, 0, 1, 1);
  view.add(rows / PrepackedFormat::kRows, row, getRow(1, 0),
           shape.tile().getWeightBlocks());
  view.add(2, row, getRow(0, 1), 2);
  int64_t inBox = llvm::divideCeil(shape.tile().swizzleRows, tiles);
  view.add(shape.problem().sizeK / (PrepackedFormat::kSizeK * tiles) * share /
               chunk,
           row + 1, chunk, inBox * share / chunk);
  view.add(chunk, row + 1, 1, chunk);
  return view.make(op, operand, /*swizzle=*/0);
}

SmallVector<tile::TensorMapAttr> sm90::getTensorMaps(tile::GemmOp op,
                                                     const GemmShape &shape) {
  MapDimensions view;
  int64_t row = shape.problem().isGrouped ? 1 : 0;
  SmallVector<tile::TensorMapAttr> maps;
  if (shape.problem().isPrepacked()) {
    maps = {getPackedTileMap(op, shape, op.getWeight(),
                             shape.problem().packed->valueBytes / 2,
                             /*tiles=*/1),
            getPackedTileMap(op, shape, op.getWeightScale(),
                             shape.problem().packed->scaleBytes / 2,
                             shape.problem().packed->scaleTiles)};
    addRowMaps(op, shape, maps);
    return maps;
  }
  if (shape.problem().isGrouped)
    view.add(shape.problem().groups, 0, 1, 1);
  // Each CTA of a cluster copies its share of the weights.
  int64_t columns = shape.tile().blockN / shape.tile().getClusterTiles();
  if (shape.problem().weightsPerColumn == 1) {
    view.add(shape.problem().columns, row, 1, columns);
  } else {
    // Dimensions: groups of columns, gate or up, column.
    constexpr int64_t paired = kPairedRows;
    bool isInterleaved =
        op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved;
    int64_t column = isInterleaved ? 2 : 1;
    view.add(shape.problem().columns / paired, row, paired * column,
             columns / paired);
    view.add(2, row, isInterleaved ? 1 : shape.problem().columns, 2);
    view.add(paired, row, column, paired);
  }
  view.add(shape.problem().sizeK, row + 1, 1, shape.tile().blockK);
  maps.push_back(view.make(op, op.getWeight(), kStepBytes));
  addRowMaps(op, shape, maps);
  return maps;
}
