//===- PackedTiles.h - fragments of weights in registers --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PACKEDTILES_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PACKEDTILES_H

#include "Schedules/Sm90Gemm/Gemm.h"
#include "moec/Dialect/Moe/PackedValues.h"

#include <memory>

namespace moec {

/// A thread's part of a packed tile, unpacked but not scaled. `numbers`: one A
/// register each, of all mmas in order. `scales`, `rests` and `addends` are in
/// the decoder's form: two scales each, for both rows of a group after the
/// other; the low parts of split scales; and values added at the end, or empty.
struct UnpackedTile {
  llvm::SmallVector<I32> numbers, scales, rests, addends;

  /// Pins the values before this point against LLVM's reordering.
  void tie(mlir::ImplicitLocOpBuilder &b);
};

/// A thread's part of a packed tile as loaded from shared memory: vectors of
/// four i32; scales are one i32 or a vector.
struct LoadedTile {
  llvm::SmallVector<mlir::Value> values;
  mlir::Value scales;

  auto fields() { return std::tie(values, scales); }
};

/// Decodes packed tiles into A registers in two steps. Only the second one, an
/// operation per register, has to wait for the mmas before.
class PackedTileDecoder {
public:
  virtual ~PackedTileDecoder() = default;

  virtual UnpackedTile open(const LoadedTile &packed) = 0;
  /// A registers of part `part` of `parts` of the mmas.
  virtual llvm::SmallVector<I32> close(const UnpackedTile &unpacked,
                                       int64_t part, int64_t parts) = 0;
};

/// Decoder to e4m3.
std::unique_ptr<PackedTileDecoder>
makeByteDecoder(AsyncEmitter &emitter, const moe::PrepackedFormat &format);
/// Decoder to bf16 or f16; `book`: address of the pairs of a code book's
/// entries, if there is one.
std::unique_ptr<PackedTileDecoder>
makeHalfDecoder(AsyncEmitter &emitter, const moe::PrepackedFormat &format,
                mlir::Value book);
/// All threads, before a barrier: writes the pairs of a code book's entries to
/// shared memory, once per lane of a warp.
void storeBook(AsyncEmitter &emitter, const moe::PrepackedFormat &format,
               mlir::Value book);

/// One thread of the producer: issues the copies of a k tile of prepacked
/// weights (one box) and of their scales (another).
void copyPackedTiles(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step, I32 stage);

/// Reads a k tile's packed tiles, and the input rows that they are multiplied
/// with.
class PackedTileReader {
public:
  PackedTileReader(Sm90Gemm &gemm, I32 consumer, int64_t blockM);

  const moe::PrepackedFormat &getFormat() const { return format; }
  int64_t getRounds() const { return packedTiles * blocks; }
  /// `round` enumerates packed tiles and blocks of a k tile: all blocks of a
  /// packed tile in sequence.
  LoadedTile load(I32 stage, int64_t round);
  /// The first packed tile of the stage at that state, after its barrier.
  LoadedTile loadFirst(PipelineState at);
  /// The first packed tile of the next k tile, at the end of one; after the
  /// last k tile `any`.
  LoadedTile loadNext(Index step, PipelineState next, const LoadedTile &any);
  /// Whether registers suffice to load packed tiles two iterations ahead, the
  /// first one of a k tile at the end of the k tile before. ptxas then unpacks
  /// them before the wait for the mmas before, else partly after it.
  bool isLoadedEarly(int64_t blockM) const;
  UnpackedTile open(const LoadedTile &packed) { return decoder->open(packed); }
  /// A registers of all mmas or, with several `parts` of a packed tile, of one
  /// part.
  llvm::SmallVector<I32> close(const UnpackedTile &unpacked, int64_t part = 0,
                               int64_t parts = 1) {
    return decoder->close(unpacked, part, parts);
  }
  /// Issues the mmas of an iteration, added to `sums`; if `keeps` is given and
  /// 0, the sums are overwritten. With several `parts` of a packed tile, only
  /// those of `part`, whose fragments alone are given.
  mlir::Value multiply(I32 stage, int64_t round, llvm::ArrayRef<I32> fragments,
                       mlir::Value sums, I32 keeps = {}, int64_t part = 0,
                       int64_t parts = 1);

  //===--- Products of warps ---===//

  /// Offsets of the thread's chunks of input rows, per octet, from the first
  /// row of a tile of `rows` rows.
  llvm::SmallVector<I32> findRows(I32 rows);
  /// Adds the mmas of a packed tile, given its blocks' fragments, to four sums
  /// of each octet of input rows, per block.
  void
  multiplyByWarps(I32 stage, int64_t packedTile, llvm::ArrayRef<I32> rowOffsets,
                  llvm::ArrayRef<llvm::SmallVector<I32>> fragments,
                  llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> sums);

private:
  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const sm90::GemmShape &shape;
  moe::PrepackedFormat format;
  std::unique_ptr<PackedTileDecoder> decoder;
  mlir::Type element;
  int64_t width, packedTiles, scaleCopies, blocks, rowBytes;
  /// Offsets of the thread's words of a k tile, and of its scales.
  I32 ownValues, ownScales;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PACKEDTILES_H
