//===- Parts.h - what one thread moves --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The parts of an exchange, and which of their chunks a thread moves in a
// round. Chunks are dealt out to the threads of all CTAs, alike on all ranks,
// so that a thread takes what the same thread of another rank pushed.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_PARTS_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_PARTS_H

#include "Heap.h"

namespace moec {

/// One pair of `ins` and `outs`. Counts and bytes are for one rank.
struct ExchangePart {
  /// Base addresses of the memory to move; for values that the kernel
  /// quantizes, of their rows.
  mlir::Value in, out;
  /// Type of one load or store and its bytes; the elements of a chunk.
  mlir::Type chunk;
  int64_t chunkBytes;
  mlir::VectorType elements;
  /// Chunks of a thread in a round: fewer for parts with fewer chunks in all.
  int64_t atOnce;
  I64 count, bytes;
  /// Chunks of a row, if rows are moved only to destination ranks; else 0.
  int64_t routedRowChunks = 0;
  /// Chunks of a row, and the warps per row, if all of a warp's chunks in a
  /// round belong to one row: for sums that the kernel computes, and for
  /// quantization with one scale per row; else 0.
  int64_t rowChunks = 0, rowWarps = 0;
  /// Bytes of a row of sums: in a heap, and in a tensor, of which it may be
  /// some columns.
  int64_t rowBytes = 0, tensorRowBytes = 0;
  /// Offsets in a receive buffer: of the data of this part from rank 0, and
  /// between ranks.
  I64 begin, rankStride;

  /// A chunk as f32, and f32 rounded to a chunk.
  F32 toF32(mlir::ImplicitLocOpBuilder &b, mlir::Value chunk) const;
  mlir::Value fromF32(mlir::ImplicitLocOpBuilder &b, F32 values) const;
};

/// One thread's chunks of a part in a round.
struct ThreadChunks {
  const ExchangePart *part;
  /// For a part with `rowChunks`: the row of all of the warp's chunks, and
  /// whether it exists.
  I64 row;
  Flag hasRow;
  /// Indices in a rank's part, byte offsets from the beginning of a rank's
  /// part, and whether the chunks exist.
  llvm::SmallVector<I64> indices, offsets;
  llvm::SmallVector<Flag> isThere;

  /// Offset of the row in a tensor minus its offset in a rank's part.
  I64 tensorGap() const {
    return row * (part->tensorRowBytes - part->rowBytes);
  }
};

class ExchangeParts {
public:
  /// Reads the number of rows; the parts are made by `make`.
  ExchangeParts(tile::ExchangeOp op, ThreadEmitter &emitter);

  /// Deals the chunks out to this thread among all of the launch.
  void setThread(const ExchangeThread &thread);
  void make();
  llvm::ArrayRef<ExchangePart> get() const { return parts; }
  /// Rows of a rank.
  I64 numRows() const { return rows; }
  /// Threads of all CTAs.
  I64 launchThreads() const { return numThreads; }
  /// The address of the first element of a tensor's columns that are moved.
  mlir::Value addressOf(mlir::Value argument);
  /// Computes all values again, so that they do not occupy registers before
  /// this point.
  void renew();
  /// The thread's chunks of each part. `base`: the number of earlier rounds
  /// times the threads of all CTAs.
  llvm::SmallVector<ThreadChunks, 0> getChunks(I64 base);
  /// Threads that one round would need for all chunks. At least 1: flags are
  /// set after a round.
  I64 countThreads();
  /// Adjacent lanes that share a group of quantized values.
  int64_t countLanesOfGroup();

private:
  void decodeRows();
  ExchangePart makePart(size_t index, I64 begin);
  /// Sets the chunks of quantized values and scales per thread and round.
  void dealOutQuantized();
  void addChunks(ThreadChunks &chunks, I64 base);
  void addChunksOfRow(ThreadChunks &chunks, I64 base);
  void addScales(llvm::MutableArrayRef<ThreadChunks> all);

  tile::ExchangeOp op;
  tile::GpuExchangeAttr config;
  ThreadEmitter &emitter;
  I64 lane;
  /// Threads of all CTAs, and this thread's index among them.
  I64 numThreads, threadIndex;
  /// The kernel's argument in place of rows (PeerHeap::kRowBits).
  I64 rowArgument, rows;
  /// Bytes of a tensor's row before the columns that are moved; null for none.
  I64 skippedBytes;
  llvm::SmallVector<ExchangePart> parts;
};

/// Whether the kernel makes the quantized values of a pair, or the scales.
bool isQuantized(tile::ExchangeOp op, size_t pair);
bool hasScales(tile::ExchangeOp op, size_t pair);

/// Words of 32 bits that a chunk fills.
int64_t countWords(const ExchangePart &part);

/// Makes all loaded chunks available here. Otherwise LLVM sinks the loads into
/// the branches of the threads that store them, one after another.
void tieChunks(ThreadEmitter &emitter,
               llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> loaded);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_PARTS_H
