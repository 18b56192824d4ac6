//===- Sm90Units.h - fragments of weights in registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H

#include "Sm90Gemm.h"
#include "moec/Dialect/Moe/Fragments.h"

#include <memory>

namespace moec {

/// A thread's part of a packed tile, unpacked but not scaled. `numbers`: one A
/// register each, of all mmas in order. `scales`, `rests` and `addends` are in
/// the decoder's form: two scales each, for both rows of a group after the
/// other; the low parts of split scales; and values added at the end, or empty.
struct OpenUnit {
  llvm::SmallVector<I32> numbers, scales, rests, addends;

  /// Pins the values before this point against LLVM's reordering.
  void tie(mlir::ImplicitLocOpBuilder &b);
};

/// A thread's part of a packed tile as loaded from shared memory: vectors of
/// four i32; scales are one i32 or a vector.
struct PackedUnit {
  llvm::SmallVector<mlir::Value> codes;
  mlir::Value scales;

  auto fields() { return std::tie(codes, scales); }
};

/// Decodes packed tiles into A registers in two steps. Only the second one, an
/// operation per register, has to wait for the mmas before.
class UnitDecoder {
public:
  virtual ~UnitDecoder() = default;

  virtual OpenUnit open(const PackedUnit &unit) = 0;
  /// A registers of part `part` of `parts` of the mmas.
  virtual llvm::SmallVector<I32> close(const OpenUnit &unit, int64_t part,
                                       int64_t parts) = 0;
};

/// Decoder to e4m3.
std::unique_ptr<UnitDecoder> makeByteDecoder(AsyncEmitter &emitter,
                                             const moe::Fragments &format);
/// Decoder to bf16 or f16; `book`: address of the pairs of a code book's
/// entries, if there is one.
std::unique_ptr<UnitDecoder> makeHalfDecoder(AsyncEmitter &emitter,
                                             const moe::Fragments &format,
                                             mlir::Value book);
/// All threads, before a barrier: writes the pairs of a code book's entries to
/// shared memory, once per lane of a warp.
void storeBook(AsyncEmitter &emitter, const moe::Fragments &format,
               mlir::Value book);

/// One thread of the producer: issues the copies of a k tile of prepacked
/// weights (one box) and of their scales (another).
void copyPackedTiles(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step, I32 stage);

/// Reads a k tile's packed tiles, and the input rows that they are multiplied
/// with.
class UnitReader {
public:
  UnitReader(Sm90Gemm &gemm, I32 consumer, int64_t height);

  const moe::Fragments &getFormat() const { return format; }
  int64_t getTurns() const { return units * blocks; }
  /// `turn` enumerates packed tiles and blocks of a k tile: all blocks of a
  /// packed tile in sequence.
  PackedUnit load(I32 stage, int64_t turn);
  /// The first packed tile of the stage at that state, after its barrier.
  PackedUnit loadFirst(PipelineState at);
  /// The first packed tile of the next k tile, at the end of one; after the
  /// last k tile `any`.
  PackedUnit loadNext(Index step, PipelineState next, const PackedUnit &any);
  /// Whether registers suffice to load packed tiles two iterations ahead, the
  /// first one of a k tile at the end of the k tile before. ptxas then unpacks
  /// them before the wait for the mmas before, else partly after it.
  bool isLoadedEarly(int64_t height) const;
  OpenUnit open(const PackedUnit &unit) { return decoder->open(unit); }
  /// A registers of all mmas or, with several `parts` of a packed tile, of one
  /// part.
  llvm::SmallVector<I32> close(const OpenUnit &unit, int64_t part = 0,
                               int64_t parts = 1) {
    return decoder->close(unit, part, parts);
  }
  /// Issues the mmas of an iteration, added to `sums`; if `keeps` is given and
  /// 0, the sums are overwritten. With several `parts` of a packed tile, only
  /// those of `part`, whose fragments alone are given.
  mlir::Value multiply(I32 stage, int64_t turn, llvm::ArrayRef<I32> fragments,
                       mlir::Value sums, I32 keeps = {}, int64_t part = 0,
                       int64_t parts = 1);

  //===--- Products of warps ---===//

  /// Offsets of the thread's chunks of input rows, per octet, from the first
  /// row of a tile of `rows` rows.
  llvm::SmallVector<I32> findRows(I32 rows);
  /// Adds the mmas of a packed tile, given its blocks' fragments, to four sums
  /// of each octet of input rows, per block.
  void
  multiplyByWarps(I32 stage, int64_t unit, llvm::ArrayRef<I32> rowOffsets,
                  llvm::ArrayRef<llvm::SmallVector<I32>> fragments,
                  llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> sums);

private:
  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const Sm90Shape &shape;
  moe::Fragments format;
  std::unique_ptr<UnitDecoder> decoder;
  mlir::Type element;
  int64_t width, units, blocks, rowBytes;
  /// Offsets of the thread's words of a k tile, and of its scales.
  I32 ownCodes, ownScales;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
