//===- Copies.cpp - the copies of sm100.gemm --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Producer of the Blackwell gemm. The weights of a k tile are a box of a tensor
// map per block; 4-bit weights are copied by threads, 16 of them to the first
// half of 16 bytes. Input rows are scattered: threads copy them in swizzled
// chunks of 16 bytes, and the four adjacent scales of a row of a k tile as a
// word. Scales of weights are stored as such words; those of input rows are
// f32, powers of two whose exponents are e8m0, which a thread loads a k tile
// ahead.
//
// A thread waits for its chunks to arrive, makes them visible to tensor cores
// and arrives at the barrier. It does so some k tiles later, or when no stage
// is free, to avoid waiting for copies that it has just issued.

#include "Kernel.h"

#include "KernelBuilder/GemmOperands.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::GemmShape;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Coordinates of the box of a block.
static SmallVector<I32> getBox(Sm100Gemm &gemm, int64_t block, I32 step) {
  TensorEmitter &emitter = gemm.emitter;
  SmallVector<I32> begin;
  if (gemm.group)
    begin.push_back(emitter.toI32(gemm.group));
  if (gemm.shape.weightsPerColumn == 2) {
    bool isUpFirst =
        gemm.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    begin.push_back(emitter.i32(isUpFirst ? 1 - block : block));
  }
  begin.push_back(emitter.toI32(gemm.getBlockColumn(block)));
  begin.push_back(step * Shape::kStep);
  return begin;
}

void moec::emitSm100WeightCopies(Sm100Gemm &gemm) {
  TensorEmitter &emitter = gemm.emitter;
  const Shape &shape = gemm.shape;
  const Pipeline &pipeline = gemm.pipeline;
  auto copyStage = [&](I32 step, PipelineState at) {
    pipeline.empty(at.stage).wait(at.before());
    Barrier full = pipeline.full(at.stage);
    full.arriveExpecting(shape.getWeightBytes());
    for (int64_t block = 0; block < shape.getBlocks(); ++block) {
      Value to = pipeline.stageAddress(at.stage, block * shape.getBlockBytes());
      emitter.copyBox(to, emitter.tensorMap(0), getBox(gemm, block, step), full,
                      /*areWeights=*/true);
    }
    return pipeline.next(at);
  };
  gemm.forTiles(pipeline.first(), [&](Sm100Gemm::Tile, PipelineState first) {
    return emitter.loop(emitter.i32(0), emitter.i32(shape.getSteps()), 1, first,
                        copyStage);
  });
}

//===----------------------------------------------------------------------===//
// Rows and scales
//===----------------------------------------------------------------------===//

namespace {

class RowCopier {
public:
  explicit RowCopier(Sm100Gemm &gemm);
  void emit();

private:
  static constexpr int64_t kRowChunks = Shape::kStepBytes / Shape::kChunkBytes;
  static constexpr int64_t kRowsAtOnce = Shape::kCopyThreads / kRowChunks;
  static_assert(kRowsAtOnce % kSwizzleRows == 0 &&
                    Shape::kRowUnit % kRowsAtOnce == 0,
                "a thread's chunk is at the same offset in all of its rows");
  static_assert(Shape::kCopyThreads == Shape::kBlockRows &&
                    Shape::kMaxRows <= Shape::kBlockRows,
                "a thread has a row of scales of each block");

  using State = RingCopies::State;

  State emitTile(const Sm100Gemm::Tile &tile, State state);
  /// Copies a k tile, with its scales of the thread's input row.
  State emitStep(const Sm100Gemm::Tile &tile, ArrayRef<Index> rows, I32 scales,
                 I32 step, State state);

  /// Position in the input of a row of the tile.
  Index findPosition(const Sm100Gemm::Tile &tile, I32 row);
  /// Address of the words of scales of the thread's row of a block.
  Value findWeightScales(int64_t block);
  /// Address of the thread's chunk of its first row of a block.
  Value findWeights(int64_t block);
  /// Copies the rows of a k tile; `chunk`: offset of the thread's chunk in a
  /// stage.
  void copyRows(const Sm100Gemm::Tile &tile, ArrayRef<Index> rows, I32 step,
                I32 stage, I32 chunk);
  void copyWeights(I32 step, I32 stage, I32 chunk);
  void copyScales(I32 scales, I32 step, I32 stage);
  /// The four scales of a k tile of an input row, from `from` on, as a word.
  I32 loadRowScales(Value from, I32 step);

  Sm100Gemm &gemm;
  TensorEmitter &emitter;
  const Shape &shape;
  const Pipeline &pipeline;
  RingCopies copies;
  Value input, inputScale, source;
  /// Index of the thread; its first row of a tile, and its chunk in each row.
  I32 own, ownRow, ownChunk;
  /// Addresses per block of weights; `weights` only for weights that no tensor
  /// map copies.
  SmallVector<Value> weightScales, weights;
};

RowCopier::RowCopier(Sm100Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
      pipeline(gemm.pipeline), copies(emitter, pipeline),
      input(emitter.operand(gemm.op.getInput())),
      inputScale(emitter.operand(gemm.op.getInputScale())),
      source(emitter.operand(gemm.op.getSource())),
      own(emitter.warpgroupThread()), ownRow(own / kRowChunks),
      ownChunk(own % kRowChunks) {
  for (int64_t block = 0; block < shape.getBlocks(); ++block) {
    weightScales.push_back(findWeightScales(block));
    if (!shape.areBytes)
      weights.push_back(findWeights(block));
  }
}

Value RowCopier::findWeightScales(int64_t block) {
  // Columns past the end repeat the last one; their sums are never read.
  Index column = gemm.getBlockColumn(block) + emitter.toIndex(own);
  if (!gemm.areWhole())
    column = min(column, shape.columns - 1);
  SmallVector<Value> indices = gemm.getLeading(
      getScaleRow(emitter, gemm.op, gemm.getProjection(block), column));
  indices.push_back(emitter.index(0));
  return emitter.address(emitter.operand(gemm.op.getWeightScale()), indices);
}

Value RowCopier::findWeights(int64_t block) {
  Index column = gemm.getBlockColumn(block) + emitter.toIndex(ownRow);
  SmallVector<Value> indices = gemm.getLeading(
      getWeightRow(emitter, gemm.op, gemm.getProjection(block), column));
  indices.push_back(emitter.toIndex(ownChunk * shape.getChunkWeightBytes()));
  return emitter.address(emitter.operand(gemm.op.getWeight()), indices);
}

Index RowCopier::findPosition(const Sm100Gemm::Tile &tile, I32 row) {
  // Rows past the end repeat the last one; their sums are never read.
  I32 last = tile.rows - 1;
  Index position = tile.firstRow + emitter.toIndex(min(row, last));
  return source ? emitter.loadIndex(source, position) : position;
}

I32 RowCopier::loadRowScales(Value from, I32 step) {
  constexpr int64_t signBits = 1, otherBits = 24, byteBits = 8, bytes = 4;
  constexpr int64_t count = Shape::kStepProducts;
  Value loaded =
      emitter.loadWords(emitter.advance(from, step * (count * bytes)), count);
  // A power of two consists of its exponent; a NaN may have a sign.
  I32 word = emitter.i32(0);
  for (int64_t i = 0; i < count; ++i) {
    I32 bits = emitter.element<I32>(loaded, i);
    word = word | ((bits << signBits) >> otherBits) << i * byteBits;
  }
  return word;
}

void RowCopier::copyRows(const Sm100Gemm::Tile &tile, ArrayRef<Index> rows,
                         I32 step, I32 stage, I32 chunk) {
  Value to = emitter.advance(
      pipeline.stageAddress(stage, shape.getWeightBytes()), chunk);
  I32 column = step * Shape::kStep + ownChunk * Shape::kChunkBytes;
  for (auto [i, row] : llvm::enumerate(rows)) {
    int64_t first = int64_t(i) * kRowsAtOnce;
    emitter.ifThen(ownRow + first < tile.rows, [&, row = row] {
      Value shared = emitter.advance(to, first * Shape::kStepBytes);
      emitter.copyAsync(shared,
                        emitter.address(input, {row, emitter.toIndex(column)}),
                        /*bytes=*/Value());
    });
  }
}

void RowCopier::copyWeights(I32 step, I32 stage, I32 chunk) {
  bool isInterleaved =
      gemm.op.getLayout() &&
      gemm.op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved;
  int64_t pitch = shape.getWeightRowBytes() * (isInterleaved ? 2 : 1);
  int64_t bytes = shape.getChunkWeightBytes();
  Value to = emitter.advance(pipeline.stageAddress(stage), chunk);
  I32 ahead = step * (kRowChunks * bytes);
  for (auto [block, from] : llvm::enumerate(weights))
    for (int64_t first = 0; first < Shape::kBlockRows; first += kRowsAtOnce) {
      auto copy = [&, block = int64_t(block), from = from] {
        Value shared = emitter.advance(to, block * shape.getBlockBytes() +
                                               first * Shape::kStepBytes);
        Value row = emitter.advance(from, first * pitch);
        emitter.copyWordAsync(shared, emitter.advance(row, ahead), bytes);
      };
      if (gemm.areWhole()) {
        copy();
        continue;
      }
      Index column =
          gemm.getBlockColumn(int64_t(block)) + emitter.toIndex(ownRow + first);
      emitter.ifThen(column < shape.columns, copy);
    }
}

void RowCopier::copyScales(I32 scales, I32 step, I32 stage) {
  constexpr int64_t bytes = Shape::kStepProducts;
  // `getScaleWordOffset` for the thread's row.
  I32 word = own % 32 * 16 + own / 32 * bytes;
  for (int64_t block = 0; block < shape.getBlocks(); ++block) {
    Value to = emitter.advance(gemm.scaleAddress(stage, block), word);
    emitter.copyWordAsync(to,
                          emitter.advance(weightScales[block], step * bytes));
  }
  emitter.store(
      scales,
      emitter.advance(gemm.scaleAddress(stage, shape.getBlocks()), word),
      bytes);
}

RowCopier::State RowCopier::emitStep(const Sm100Gemm::Tile &tile,
                                     ArrayRef<Index> rows, I32 scales, I32 step,
                                     State state) {
  I32 stage = state.place.stage;
  Barrier empty = pipeline.empty(stage);
  return copies.emitStep(state, empty, state.place.before(), [&] {
    I32 swizzled = swizzle(ownRow, ownChunk);
    I32 chunk = ownRow * Shape::kStepBytes + swizzled * Shape::kChunkBytes;
    copyRows(tile, rows, step, stage, chunk);
    if (!shape.areBytes)
      copyWeights(step, stage, chunk);
    copyScales(scales, step, stage);
  });
}

RowCopier::State RowCopier::emitTile(const Sm100Gemm::Tile &tile, State state) {
  SmallVector<Index> rows;
  for (int64_t i = 0; i < shape.m; i += kRowsAtOnce)
    rows.push_back(findPosition(tile, ownRow + i));
  Value scales =
      emitter.address(inputScale, {findPosition(tile, own), emitter.index(0)});
  I32 first = loadRowScales(scales, emitter.i32(0));
  I32 last = emitter.i32(shape.getSteps() - 1);
  auto end = emitter.loop(emitter.i32(0), emitter.i32(shape.getSteps()), 1,
                          std::tuple(state, first), [&](I32 step, auto at) {
                            auto [state, own] = at;
                            I32 ahead =
                                loadRowScales(scales, min(step + 1, last));
                            State next = emitStep(tile, rows, own, step, state);
                            return std::tuple(next, ahead);
                          });
  return std::get<0>(end);
}

void RowCopier::emit() {
  State end = gemm.forTiles(
      copies.begin(pipeline.first()),
      [&](Sm100Gemm::Tile tile, State state) { return emitTile(tile, state); });
  copies.publishAll(end);
}

} // namespace

void moec::emitSm100RowCopies(Sm100Gemm &gemm) { RowCopier(gemm).emit(); }
