//===- Sm90Units.h - fragments of weights in registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H

#include "Sm90Contract.h"
#include "moec/Dialect/Moe/Fragments.h"

#include <memory>

namespace moec {

/// A thread's share of a unit before the last step, i32: words of small
/// numbers, a register of a fragment each, of all products one after the other;
/// and, as the decoder has them, of two scales each, of both rows of one group
/// after the other, what scales are greater by, and what is added in the end,
/// or nothing.
struct OpenUnit {
  llvm::SmallVector<mlir::Value> numbers, scales, rests, addends;

  /// Ahead of this point, whatever LLVM would like.
  void tie(mlir::ImplicitLocOpBuilder &b);
};

/// A thread's share of a unit as shared memory has it: vectors of four i32, and
/// of scales one i32 or a vector of several.
struct PackedUnit {
  llvm::SmallVector<mlir::Value> codes;
  mlir::Value scales;

  /// All of them as a loop carries them, scales last.
  llvm::SmallVector<mlir::Value> flatten() const;
  static PackedUnit unflatten(mlir::ValueRange values);
};

/// Makes fragments of a thread's share of units, in two steps: of which the
/// last one, an operation per register, is all that has to wait for the
/// products before.
class UnitDecoder {
public:
  virtual ~UnitDecoder() = default;

  virtual OpenUnit open(const PackedUnit &unit) = 0;
  /// The fragments of one of so many parts of the products.
  virtual llvm::SmallVector<mlir::Value> close(const OpenUnit &unit,
                                               int64_t part, int64_t parts) = 0;
};

/// Of codes that become e4m3.
std::unique_ptr<UnitDecoder> makeByteDecoder(AsyncEmitter &emitter,
                                             const moe::Fragments &format);
/// Of codes that become bf16 or f16; `book`: where the pairs of a code book's
/// numbers lie, if it is one.
std::unique_ptr<UnitDecoder> makeHalfDecoder(AsyncEmitter &emitter,
                                             const moe::Fragments &format,
                                             mlir::Value book);
/// All threads, ahead of a barrier: the pairs of a code book's numbers, each as
/// many times as a warp has lanes.
void storeBook(AsyncEmitter &emitter, const moe::Fragments &format,
               mlir::Value book);

/// What a consumer reads of a step: units of weights, and the input rows that
/// they are multiplied with.
class UnitReader {
public:
  UnitReader(Sm90Contract &contract, mlir::Value consumer, int64_t height);

  const moe::Fragments &getFormat() const { return format; }
  int64_t getTurns() const { return units * blocks; }
  /// Unit and block of a step come in turns: all blocks of a unit.
  PackedUnit load(mlir::Value stage, int64_t turn);
  /// Whether there are registers for units that are loaded two turns before
  /// their own, the first one of a step at the end of the step before: then
  /// ptxas takes them apart ahead of the wait for the products before, and else
  /// partly behind it.
  bool isLoadedEarly(int64_t height) const;
  OpenUnit open(const PackedUnit &unit) { return decoder->open(unit); }
  /// The fragments of all products, or of several `parts` of a unit those of
  /// one.
  llvm::SmallVector<mlir::Value> close(const OpenUnit &unit, int64_t part = 0,
                                       int64_t parts = 1) {
    return decoder->close(unit, part, parts);
  }
  /// Starts the products of a turn's fragments, added to sums; where `keeps`
  /// (i32) is there and 0, these are new ones. Of several `parts` of a unit
  /// those of one, whose fragments alone are given.
  mlir::Value multiply(mlir::Value stage, int64_t turn,
                       llvm::ArrayRef<mlir::Value> fragments, mlir::Value sums,
                       mlir::Value keeps = {}, int64_t part = 0,
                       int64_t parts = 1);

  //===--- Products of warps ---===//

  /// Where the thread's chunks of the input rows lie, of each octet, counted
  /// from the first row of a tile of so many (i32).
  llvm::SmallVector<mlir::Value> findRows(mlir::Value rows);
  /// Adds the products of a unit, whose blocks have those fragments, to four
  /// sums of each octet of input rows, per block.
  void
  multiplyByWarps(mlir::Value stage, int64_t unit,
                  llvm::ArrayRef<mlir::Value> rowOffsets,
                  llvm::ArrayRef<llvm::SmallVector<mlir::Value>> fragments,
                  llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> sums);

private:
  Sm90Contract &contract;
  AsyncEmitter &emitter;
  const sm90::Contract &shape;
  moe::Fragments format;
  std::unique_ptr<UnitDecoder> decoder;
  mlir::Type element;
  int64_t width, units, blocks, rowBytes;
  /// Where the thread's words of a step begin, and its scales.
  mlir::Value ownCodes, ownScales;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
