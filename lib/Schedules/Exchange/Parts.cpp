//===- Parts.cpp - what one thread moves ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"

#include "KernelBuilder/InlinePtx.h"

#include "moec/Dialect/RowQuantization.h"
#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"
#include "moert/PeerHeap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using moert::PeerHeap;

static constexpr int64_t kWordBytes = 4;

bool moec::isQuantized(tile::ExchangeOp op, size_t pair) {
  return op.getQuantized() && op.getQuantized()->front() == int64_t(pair);
}

bool moec::hasScales(tile::ExchangeOp op, size_t pair) {
  return op.getQuantized() && op.getQuantized()->back() == int64_t(pair);
}

int64_t moec::countWords(const ExchangePart &part) {
  return int64_t(llvm::divideCeil(part.chunkBytes, kWordBytes));
}

F32 ExchangePart::toF32(ImplicitLocOpBuilder &b, Value chunk) const {
  return {b, castFloat(b, LLVM::BitcastOp::create(b, elements, chunk),
                       b.getF32Type())};
}

Value ExchangePart::fromF32(ImplicitLocOpBuilder &b, F32 values) const {
  return LLVM::BitcastOp::create(
      b, chunk, castFloat(b, values, elements.getElementType()));
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

ExchangeParts::ExchangeParts(tile::ExchangeOp op, ThreadEmitter &emitter)
    : op(op), config(cast<tile::GpuExchangeAttr>(op.getConfigAttr())),
      emitter(emitter), rowArgument(emitter.toI64(emitter.tokens())) {
  decodeRows();
  if (op.getFirstColumn()) {
    int64_t bytes =
        getElementTypeOrSelf(op.getIns().front()).getIntOrFloatBitWidth() /
        CHAR_BIT;
    skippedBytes = I64(emitter.b, emitter.operand(op.getFirstColumn())) * bytes;
  }
}

void ExchangeParts::setThread(const ExchangeThread &thread) {
  lane = thread.lane;
  numThreads = emitter.numCtas().toI64() * emitter.getNumThreads();
  threadIndex = thread.cta * emitter.getNumThreads() + thread.thread;
}

/// The argument of a gather also has which pairs have been copied already.
void ExchangeParts::decodeRows() {
  bool isGather = op.getKind() == plan::CollectiveKind::AllGather;
  rows = isGather ? rowArgument & ((int64_t(1) << PeerHeap::kRowBits) - 1)
                  : rowArgument;
}

void ExchangeParts::renew() {
  rowArgument = tieNumber(rowArgument);
  decodeRows();
  make();
}

Value ExchangeParts::addressOf(Value argument) {
  Value base = emitter.baseAddress(emitter.operand(argument));
  return skippedBytes ? emitter.advance(base, skippedBytes) : base;
}

ExchangePart ExchangeParts::makePart(size_t index, I64 begin) {
  ExchangePart part;
  Builder &b = emitter.b;
  bool isGather = op.getKind() == plan::CollectiveKind::AllGather;
  Value in = op.getIns()[index], out = op.getOuts()[index];
  ExchangedPart shape = getExchangedPart(
      op.getKind(), int64_t(op.getHeaps().size()), op.getMovedType(index));
  if (hasScales(op, index)) {
    // Each is stored by the thread that has made it.
    shape.chunks *= shape.chunkBytes / kWordBytes;
    shape.chunkBytes = kWordBytes;
  }
  part.in = addressOf(isQuantized(op, index) ? op.getUnquantized() : in);
  part.out = addressOf(out);
  part.chunkBytes = shape.chunkBytes;
  Type element = getElementTypeOrSelf(in.getType());
  part.elements = VectorType::get(
      shape.chunkBytes * CHAR_BIT / element.getIntOrFloatBitWidth(), element);
  if (shape.chunkBytes <= kWordBytes)
    part.chunk = b.getIntegerType(CHAR_BIT * shape.chunkBytes);
  else
    part.chunk = VectorType::get(shape.chunkBytes / kWordBytes, b.getI32Type());
  part.count = shape.perToken ? rows * shape.chunks : emitter.i64(shape.chunks);
  part.bytes = part.count * shape.chunkBytes;
  if (isGather && index < size_t(PeerHeap::kMaxCopied)) {
    int64_t bit = int64_t(1) << (PeerHeap::kRowBits + int64_t(index));
    Flag isMoved = (rowArgument & bit) == 0;
    part.count = select(isMoved, part.count, 0);
  }
  part.begin = begin;
  part.atOnce = shape.chunks;
  if (op.getRows()) {
    part.rowChunks = shape.chunks;
    part.rowBytes = shape.chunks * shape.chunkBytes;
    auto type = cast<MemRefType>(in.getType());
    part.tensorRowBytes =
        type.getDimSize(1) * type.getElementTypeBitWidth() / CHAR_BIT;
  }
  if (movesToDestinations(op, int64_t(index)))
    part.routedRowChunks = shape.chunks;
  part.rankStride =
      (part.bytes + (PeerHeap::kAlignment - 1)) & -PeerHeap::kAlignment;
  return part;
}

void ExchangeParts::make() {
  parts.clear();
  I64 begin = emitter.i64(0);
  int64_t most = 1;
  for (size_t i = 0; i < op.getIns().size(); ++i) {
    parts.push_back(makePart(i, begin));
    begin = begin + parts.back().rankStride * int64_t(op.getHeaps().size());
    most = std::max(most, parts.back().atOnce);
  }
  for (ExchangePart &part : parts)
    part.atOnce = std::max<int64_t>(
        1, llvm::divideCeil(part.atOnce * config.getChunks(), most));
  // All chunks of a round are of one row.
  for (ExchangePart &part : parts)
    if (part.rowChunks > 0) {
      part.atOnce = config.getChunks();
      part.rowWarps = countWarpsOfRow(part.rowChunks, part.atOnce);
    }
  if (op.getQuantized())
    dealOutQuantized();
}

void ExchangeParts::dealOutQuantized() {
  auto pair = size_t(op.getQuantized()->front());
  ExchangePart &values = parts[pair];
  ExchangePart &scales = parts[size_t(op.getQuantized()->back())];
  // One scale per chunk of quantized values, or per row.
  scales.atOnce = values.atOnce;
  if (!hasRowScales(op))
    return;
  int64_t chunks = getExchangedPart(op.getKind(), int64_t(op.getHeaps().size()),
                                    op.getMovedType(pair))
                       .chunks;
  values.rowChunks = chunks;
  values.rowWarps = countQuantizingWarps(chunks, config.getChunks());
  values.atOnce = llvm::divideCeil(chunks, kWarp * values.rowWarps);
  scales.atOnce = 1;
}

I64 ExchangeParts::countThreads() {
  I64 most = emitter.i64(1);
  for (const ExchangePart &part : parts) {
    I64 threads = part.rowChunks > 0 ? rows * (kWarp * part.rowWarps)
                                     : divideUp(part.count, part.atOnce);
    most = max(most, threads);
  }
  return most;
}

int64_t ExchangeParts::countLanesOfGroup() {
  auto type = [&](int64_t pair) {
    return cast<MemRefType>(op.getIns()[size_t(pair)].getType());
  };
  // A quantized value is one byte.
  return *RowQuantization::getGroup(type(op.getQuantized()->front()),
                                    type(op.getQuantized()->back())) /
         parts[size_t(op.getQuantized()->front())].chunkBytes;
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

void ExchangeParts::addChunks(ThreadChunks &chunks, I64 base) {
  const ExchangePart &part = *chunks.part;
  I64 index = base * part.atOnce + threadIndex;
  for (int64_t i = 0; i < part.atOnce; ++i) {
    if (i > 0)
      index = index + numThreads;
    chunks.indices.push_back(index);
    chunks.isThere.push_back(index < part.count);
  }
}

/// A warp's chunks are consecutive in a row.
void ExchangeParts::addChunksOfRow(ThreadChunks &chunks, I64 base) {
  const ExchangePart &part = *chunks.part;
  I64 warp = (base + threadIndex) >> llvm::Log2_64(kWarp);
  // An operator would fold a division by 1, after which LLVM orders other
  // instructions of the kernel differently.
  ImplicitLocOpBuilder &b = emitter.b;
  chunks.row = {b, arith::DivUIOp::create(b, warp, emitter.i64(part.rowWarps))};
  chunks.hasRow = chunks.row < rows;
  I64 warpOfRow = warp - chunks.row * part.rowWarps;
  I64 column = warpOfRow * (kWarp * part.atOnce) + lane;
  I64 index = chunks.row * part.rowChunks + column;
  for (int64_t i = 0; i < part.atOnce; ++i) {
    int64_t distance = i * kWarp;
    chunks.indices.push_back(index + distance);
    chunks.isThere.push_back(chunks.hasRow &
                             (column + distance < part.rowChunks));
  }
}

/// Scales are contiguous, in the order of groups and rows.
void ExchangeParts::addScales(MutableArrayRef<ThreadChunks> all) {
  const ThreadChunks &values = all[size_t(op.getQuantized()->front())];
  ThreadChunks &scales = all[size_t(op.getQuantized()->back())];
  auto addScale = [&](I64 index, Flag isThere) {
    scales.indices.push_back(index);
    scales.offsets.push_back(index * scales.part->chunkBytes);
    scales.isThere.push_back(isThere);
  };
  if (values.row) {
    // The thread with the row's first chunk stores the scale.
    Flag isFirst =
        values.indices.front() == values.row * values.part->rowChunks;
    addScale(values.row, values.hasRow & isFirst);
    return;
  }
  int64_t lanes = countLanesOfGroup();
  Flag isFirst = lane % lanes == 0;
  for (auto [index, isThere] : llvm::zip(values.indices, values.isThere))
    addScale(index / lanes, isThere & isFirst);
}

SmallVector<ThreadChunks, 0> ExchangeParts::getChunks(I64 base) {
  SmallVector<ThreadChunks, 0> all;
  for (auto [pair, part] : llvm::enumerate(parts)) {
    ThreadChunks &chunks = all.emplace_back();
    chunks.part = &part;
    if (hasScales(op, pair))
      continue;
    if (part.rowChunks > 0)
      addChunksOfRow(chunks, base);
    else
      addChunks(chunks, base);
    I64 first = chunks.indices.front() * part.chunkBytes;
    for (auto [i, index] : llvm::enumerate(chunks.indices))
      // Chunks of a row are at constant distances.
      chunks.offsets.push_back(chunks.row ? first + int64_t(i) * kWarp *
                                                        part.chunkBytes
                                          : index * part.chunkBytes);
  }
  if (op.getQuantized())
    addScales(all);
  return all;
}

void moec::tieChunks(ThreadEmitter &emitter,
                     MutableArrayRef<SmallVector<Value>> loaded) {
  ImplicitLocOpBuilder &b = emitter.b;
  SmallVector<Value> words;
  auto forChunks = [&](llvm::function_ref<void(Value &, int64_t)> body) {
    for (SmallVector<Value> &chunks : loaded)
      for (Value &chunk : chunks) {
        auto vector = dyn_cast<VectorType>(chunk.getType());
        if (getElementTypeOrSelf(chunk) == b.getI32Type())
          body(chunk, vector ? vector.getNumElements() : 0);
      }
  };
  forChunks([&](Value &chunk, int64_t count) {
    if (count == 0)
      words.push_back(chunk);
    for (int64_t i = 0; i < count; ++i)
      words.push_back(LLVM::ExtractElementOp::create(b, chunk, emitter.i32(i)));
  });
  if (words.empty())
    return;
  SmallVector<Value> tied = tieWords(b, words);
  const Value *next = tied.begin();
  forChunks([&](Value &chunk, int64_t count) {
    if (count == 0)
      chunk = *next++;
    for (int64_t i = 0; i < count; ++i)
      chunk = LLVM::InsertElementOp::create(b, chunk, *next++, emitter.i32(i));
  });
}
