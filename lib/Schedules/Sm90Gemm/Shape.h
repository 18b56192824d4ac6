//===- Shape.h - sizes behind the schedules sm90.* --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shapes of the Hopper gemm (`sm90.gemm`) and of weight prepacking
// (`sm90.prepack`), shared by config selection and code emission.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_SHAPE_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_SHAPE_H

#include "Registers.h"
#include "SharedLayout.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"

#include <string>

namespace moec::sm90 {

/// The warp-specialized gemm of Hopper. A CTA multiplies `blockN` columns
/// (two weight rows each if gate and up are interleaved by a layout) with up to
/// `getMaxBlockM()` input rows, in k tiles of `blockK` elements. One warpgroup
/// produces and two consume.
///
/// By default A and B are swapped: weight rows are the 64-row M side of wgmma
/// and input rows the N side, whose width is a multiple of 8, so that few rows
/// cost little. A CTA has four blocks of 64 weight rows (two per consumer),
/// two, or one. Consumers that share one block each multiply half of every k
/// tile, then exchange sums so that each finishes half of the input rows.
///
/// With `noSwapAB`, tiles of 64 and 128 rows are not swapped: input rows are
/// the M side. A tile of 64 rows is shared by the consumers, which split the
/// weights; in a tile of 128 rows each consumer has 64 rows. A thread then has
/// sums of two rows and needs the scales of these two only; swapped, it has
/// sums of a quarter of the rows. Tiles with fewer rows, for the rest of a
/// group, are swapped.
///
/// In block fp8 a k tile is one scale block, and the scales are copied with it.
/// A consumer accumulates each k tile of a block of weights separately and adds
/// it, scaled, to its f32 sums (promotion). Scales of whole rows multiply the
/// finished sums, ahead of bias and activation. With such scales, tensor cores
/// alone accumulate short rows; longer rows are promoted per k tile too.
///
/// Prepacked weights of 4 or 8 bits (`packing = prepacked`) are multiplied from
/// registers. Consumers load a packed tile of 64 x 64 from shared memory,
/// decode it and multiply it with one swizzle row of each input row: 128 bytes,
/// or 64 for e4m3. A k tile is one or more packed tiles deep. Its weights are
/// copied as a box of halves (32 rows each), its scales as another box. A CTA
/// has two blocks of 64 weight rows (one per consumer), four (two per
/// consumer), or three (one for each of three consumers). In tiles of 8 rows
/// the warps of a consumer multiply independently of each other (`mma.sync`).
///
/// With a layout, 8 gate rows and the 8 up rows of the same columns alternate
/// within a block, so that one thread holds gate and up of a column.
///
/// A gemm that quantizes its results has tiles of one group of columns. If the
/// scale is not given, the largest magnitude of a row is reduced among the
/// threads that hold the row: four lanes in tiles of 128 rows with `noSwapAB`,
/// else warps of both consumers through shared memory.
///
/// Joined gemms share memory and registers: pipeline, staging and exchange have
/// the size that the larger of the two gemms needs.
class GemmShape {
public:
  /// The gemm alone, with a config whose tiles are legal.
  GemmShape(tile::GemmOp op, tile::ConfigAttr config);

  /// The problem, its tiling, and the memory and registers of a CTA.
  const GemmProblem &problem() const { return asked; }
  const TileShape &tile() const { return tiles; }
  const SharedLayout &shared() const { return layout; }
  const RegisterBudget &registers() const { return budget; }

  /// Some producer threads copy rows, scales or adapters one by one, without
  /// TMA.
  bool hasRowThreads() const {
    return !tiles.mapRows || asked.copiesScales() || asked.adapters;
  }

  /// Warps that copy rows of k tiles, or scales of rows, in turn; 1: all copy
  /// each k tile together. A k tile costs a thread mostly waits and arrivals:
  /// in turn, few rows are copied in a third of the time. The rows of the
  /// second of two joined gemms have nothing else to wait for.
  int64_t getRowTurns() const;

  /// Enlarges memory and registers to what a joined gemm needs too.
  void shareWith(const GemmShape &other);
  /// Reason why this gemm and `other`, as the second, cannot be joined in one
  /// kernel; empty if they can.
  std::string whyApart(const GemmShape &other) const;

private:
  GemmProblem asked;
  TileShape tiles;
  SharedLayout layout;
  RegisterBudget budget;
};

/// Producer threads that copy rows where no tensor map does.
inline constexpr int64_t kRowThreads = 96;
/// Stages that warps which copy k tiles in turn need: a warp waits by the
/// parity of a stage's round, which tells two rounds apart, so no more k tiles
/// may lie between two of its own. Turns begin anew with each tile.
int64_t getTurnStages(const TileShape &tile);
/// Rows of a k tile that a warp quantizes at once: eight lanes per row.
inline constexpr int64_t kQuantizedAtOnce = 4;
/// Interleaving of gate and up: 8 rows of gate, then 8 of up.
inline constexpr int64_t kPairedRows = 8;
/// Increment of the dynamic scheduler's counter per tile, in kernels whose CTAs
/// add 1 to the same counter to signal: when their rows are quantized, or when
/// their results are complete. With sums behind joined gemms, the increment of
/// the second gemm's signals. Larger than the number of CTAs.
inline constexpr int64_t kTileIncrement = int64_t(1) << 12;

/// Weight prepacking. A CTA's shared memory holds a block of 64 weight rows:
/// first the quantized values of a part of K, then one number per row, by which
/// the exponents of the row's stored scales are reduced.
struct Prepack {
  explicit Prepack(tile::PrepackOp op);

  static constexpr int64_t kExcessBytes = 4;

  /// `partTiles`: packed tiles along K in a part; the last part may have fewer.
  int64_t rows, sizeK, storageBits, partTiles;
  int64_t getPackedTiles() const {
    return sizeK / moe::PrepackedFormat::kSizeK;
  }
  /// Bytes of quantized values in a row: of all of K, of a packed tile, of a
  /// part.
  int64_t getWeightRowBytes() const { return sizeK * storageBits / 8; }
  int64_t getTileRowBytes() const {
    return moe::PrepackedFormat::kSizeK * storageBits / 8;
  }
  int64_t getPartRowBytes() const { return partTiles * getTileRowBytes(); }
  int64_t getExcessOffset() const {
    return moe::PrepackedFormat::kRows * getPartRowBytes();
  }
  int64_t getSharedBytes() const {
    return getExcessOffset() + moe::PrepackedFormat::kRows * kExcessBytes;
  }
};

/// The gemm that `op` is joined with in one kernel; null if there is none.
tile::GemmOp getPartner(tile::GemmOp op);

/// The quantization of the gemm's input rows at the start of its kernel; null
/// if there is none.
tile::QuantizeOp getQuantization(tile::GemmOp op);

/// Whether the gemm begins with its rows before the launch before it, which
/// computes its `shrunk` rows, has ended.
bool awaitsRows(tile::GemmOp op);

/// The sums of the gemm's rows behind it in its kernel, to which it signals;
/// null if there are none.
tile::GatherReduceOp getSums(tile::GemmOp op);

/// Increment of the tile scheduler's counter per tile: `kTileIncrement` if CTAs
/// signal by the same counter, else 1.
int64_t getTileIncrement(tile::GemmOp op);

/// Shape of a gemm with that config in its kernel. Includes what a joined gemm
/// needs, if that has a legal config of this schedule.
GemmShape getShapeInKernel(tile::GemmOp op, tile::ConfigAttr config);

/// Innermost extent, in bytes, of a box that copies packed tiles or their
/// scales: the largest divisor, up to 256, of `share`, the bytes that half of a
/// packed tile has.
int64_t getChunkBytes(int64_t share);

/// The tensor maps of sm90.gemm: those of the weights (and of prepacked
/// scales), then, with `map_rows`, those of the input rows, one per BLOCK_M.
llvm::SmallVector<tile::TensorMapAttr> getTensorMaps(tile::GemmOp op,
                                                     const GemmShape &shape);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_SHAPE_H
