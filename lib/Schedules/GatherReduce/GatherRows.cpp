//===- GatherRows.cpp - the schedule gpu.gather_rows ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each of a CTA's `warps` copies one row of every tensor, up to 8 chunks per
// lane at a time; all loads are issued before the first store. Elements in an
// expert's own column order are loaded one by one, and stored in chunks.

#include "KernelBuilder/GroupColumns.h"
#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuGatherRows {
public:
  GpuGatherRows(tile::GatherRowsOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b) {}

  void emit();

private:
  void copyRow(Value from, Value to, int64_t rowBytes);
  /// Copies the elements of the columns listed at the address `columns`.
  void copyInOrder(Value from, Value to, Value columns, int64_t width,
                   int64_t elementBytes);
  /// Copies this lane's chunks `first`, `first + 32`, ... below `count`.
  void copyChunks(Value from, Value to, I32 first, int64_t count,
                  int64_t bytes);
  Type getChunkType(int64_t bytes) {
    constexpr int64_t wordBytes = 4;
    if (bytes <= wordBytes)
      return b.getIntegerType(8 * bytes);
    return VectorType::get(bytes / wordBytes, b.getI32Type());
  }

  tile::GatherRowsOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
};

void GpuGatherRows::copyChunks(Value from, Value to, I32 first, int64_t count,
                               int64_t bytes) {
  SmallVector<I32> offsets;
  SmallVector<Value> chunks;
  for (int64_t i = 0; i < count; ++i) {
    offsets.push_back(first * bytes + i * kWarp * bytes);
    chunks.push_back(emitter.load(getChunkType(bytes),
                                  emitter.advance(from, offsets[i]), bytes));
  }
  for (auto [chunk, offset] : llvm::zip(chunks, offsets))
    emitter.store(chunk, emitter.advance(to, offset), bytes);
}

void GpuGatherRows::copyRow(Value from, Value to, int64_t rowBytes) {
  constexpr int64_t maxBytes = 16, maxAtOnce = 8;
  int64_t bytes = std::min(maxBytes, rowBytes & -rowBytes);
  int64_t chunks = rowBytes / bytes;
  int64_t rounds = chunks / kWarp, rest = chunks % kWarp;
  int64_t last = rounds % maxAtOnce;
  I32 lane = emitter.lane();
  if (rounds > last)
    emitter.loop(emitter.index(0), emitter.index((rounds - last) * kWarp),
                 maxAtOnce * kWarp, [&](Index first) {
                   I32 own = emitter.toI32(first) + lane;
                   copyChunks(from, to, own, maxAtOnce, bytes);
                 });
  if (last)
    copyChunks(from, to, lane + (rounds - last) * kWarp, last, bytes);
  if (rest)
    emitter.ifThen(lane < rest, [&] {
      copyChunks(from, to, lane + rounds * kWarp, 1, bytes);
    });
}

void GpuGatherRows::copyInOrder(Value from, Value to, Value columns,
                                int64_t width, int64_t elementBytes) {
  constexpr int64_t maxBytes = 16, numberBytes = 4, perLoad = 4;
  int64_t rowBytes = width * elementBytes;
  int64_t bytes = std::min(maxBytes, rowBytes & -rowBytes);
  int64_t lanes = std::max<int64_t>(1, bytes / elementBytes);
  int64_t chunks = width / lanes;
  Type element = b.getIntegerType(8 * elementBytes);
  auto copyChunk = [&](I32 chunk) {
    SmallVector<Value> elements;
    for (int64_t first = 0; first < lanes; first += perLoad) {
      int64_t count = std::min(perLoad, lanes - first);
      Value numbers =
          emitter.load(VectorType::get(count, b.getI32Type()),
                       emitter.advance(columns, chunk * (lanes * numberBytes) +
                                                    first * numberBytes),
                       count * numberBytes);
      for (int64_t i = 0; i < count; ++i) {
        I32 column = emitter.toI32(
            toColumn(emitter, emitter.element<I32>(numbers, i), width));
        elements.push_back(
            emitter.load(element, emitter.advance(from, column * elementBytes),
                         elementBytes));
      }
    }
    Value made = emitter.makeVector(ArrayRef(elements));
    emitter.store(made, emitter.advance(to, chunk * bytes), bytes);
  };
  emitter.loop(emitter.index(0), emitter.index(chunks), kWarp,
               [&](Index first) {
                 I32 chunk = emitter.toI32(first) + emitter.lane();
                 emitter.ifThen(chunk < chunks, [&] { copyChunk(chunk); });
               });
}

void GpuGatherRows::emit() {
  Value offsets = emitter.operand(op.getOffsets());
  Index count = emitter.tokens();
  if (offsets) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    count = emitter.loadIndex(offsets, emitter.index(groups));
  }
  auto config = cast<tile::GpuGatherRowsAttr>(op.getConfigAttr());
  Index first = emitter.cta() * config.getWarps();
  Index row = first + emitter.toIndex(emitter.warp());
  emitter.ifThen(row < count, [&] {
    Index source = row;
    if (Value rows = emitter.operand(op.getSource()))
      source = emitter.loadIndex(rows, ValueRange{row});
    Value zero = emitter.index(0), columns;
    if (Value operand = emitter.operand(op.getColumns()))
      columns = emitter.address(
          operand, {offsets ? findGroup(emitter, offsets, row) : zero, zero});
    for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
      auto type = cast<MemRefType>(input.getType());
      int64_t width = type.getDimSize(1);
      int64_t elementBytes = type.getElementTypeBitWidth() / 8;
      Value from = emitter.address(emitter.operand(input), {source, zero});
      Value to = emitter.address(emitter.operand(result), {row, zero});
      if (columns)
        copyInOrder(from, to, columns, width, elementBytes);
      else
        copyRow(from, to, width * elementBytes);
    }
  });
}

} // namespace

LogicalResult moec::emitGpuGatherRows(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuGatherRows(cast<tile::GatherRowsOp>(phase), emitter).emit();
  return success();
}
