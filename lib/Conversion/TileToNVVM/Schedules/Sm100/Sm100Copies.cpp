//===- Sm100Copies.cpp - the copies of sm100.contract -----------*- C++ -*-===//
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

#include "Sm100Contract.h"

#include "../../../Emission/ContractOperands.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::Contract;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Coordinates of the box of a block.
static SmallVector<I32> getBox(Sm100Contract &contract, int64_t block,
                               I32 step) {
  TensorEmitter &emitter = contract.emitter;
  SmallVector<I32> begin;
  if (contract.group)
    begin.push_back(emitter.toI32(contract.group));
  if (contract.shape.weightsPerColumn == 2) {
    bool isUpFirst =
        contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    begin.push_back(emitter.i32(isUpFirst ? 1 - block : block));
  }
  begin.push_back(emitter.toI32(contract.getBlockColumn(block)));
  begin.push_back(step * Shape::kStep);
  return begin;
}

void moec::emitSm100WeightCopies(Sm100Contract &contract) {
  TensorEmitter &emitter = contract.emitter;
  const Shape &shape = contract.shape;
  const Pipeline &pipeline = contract.pipeline;
  auto copyStage = [&](I32 step, PipelineState at) {
    pipeline.empty(at.stage).wait(at.before());
    Barrier full = pipeline.full(at.stage);
    full.arriveExpecting(shape.getWeightBytes());
    for (int64_t block = 0; block < shape.getBlocks(); ++block) {
      Value to = pipeline.stageAddress(at.stage, block * shape.getBlockBytes());
      emitter.copyBox(to, emitter.tensorMap(0), getBox(contract, block, step),
                      full, /*areWeights=*/true);
    }
    return pipeline.next(at);
  };
  contract.forTiles(
      pipeline.first(), [&](Sm100Contract::Tile, PipelineState first) {
        return emitter.loop(emitter.i32(0), emitter.i32(shape.getSteps()), 1,
                            first, copyStage);
      });
}

//===----------------------------------------------------------------------===//
// Rows and scales
//===----------------------------------------------------------------------===//

namespace {

class RowCopier {
public:
  explicit RowCopier(Sm100Contract &contract);
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

  State emitTile(const Sm100Contract::Tile &tile, State state);
  /// Copies a k tile, with its scales of the thread's input row.
  State emitStep(const Sm100Contract::Tile &tile, ArrayRef<Index> rows,
                 I32 scales, I32 step, State state);

  /// Position in the input of a row of the tile.
  Index findPosition(const Sm100Contract::Tile &tile, I32 row);
  /// Address of the words of scales of the thread's row of a block.
  Value findWeightScales(int64_t block);
  /// Address of the thread's chunk of its first row of a block.
  Value findWeights(int64_t block);
  /// Copies the rows of a k tile; `chunk`: offset of the thread's chunk in a
  /// stage.
  void copyRows(const Sm100Contract::Tile &tile, ArrayRef<Index> rows, I32 step,
                I32 stage, I32 chunk);
  void copyWeights(I32 step, I32 stage, I32 chunk);
  void copyScales(I32 scales, I32 step, I32 stage);
  /// The four scales of a k tile of an input row, from `from` on, as a word.
  I32 loadRowScales(Value from, I32 step);

  Sm100Contract &contract;
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

RowCopier::RowCopier(Sm100Contract &contract)
    : contract(contract), emitter(contract.emitter), shape(contract.shape),
      pipeline(contract.pipeline), copies(emitter, pipeline),
      input(emitter.operand(contract.op.getInput())),
      inputScale(emitter.operand(contract.op.getInputScale())),
      source(emitter.operand(contract.op.getSource())),
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
  Index column = contract.getBlockColumn(block) + emitter.toIndex(own);
  if (!contract.areWhole())
    column = min(column, shape.columns - 1);
  SmallVector<Value> indices = contract.getLeading(
      getScaleRow(emitter, contract.op, contract.getProjection(block), column));
  indices.push_back(emitter.index(0));
  return emitter.address(emitter.operand(contract.op.getWeightScale()),
                         indices);
}

Value RowCopier::findWeights(int64_t block) {
  Index column = contract.getBlockColumn(block) + emitter.toIndex(ownRow);
  SmallVector<Value> indices = contract.getLeading(getWeightRow(
      emitter, contract.op, contract.getProjection(block), column));
  indices.push_back(emitter.toIndex(ownChunk * shape.getChunkWeightBytes()));
  return emitter.address(emitter.operand(contract.op.getWeight()), indices);
}

Index RowCopier::findPosition(const Sm100Contract::Tile &tile, I32 row) {
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

void RowCopier::copyRows(const Sm100Contract::Tile &tile, ArrayRef<Index> rows,
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
      contract.op.getLayout() &&
      contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved;
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
      if (contract.areWhole()) {
        copy();
        continue;
      }
      Index column = contract.getBlockColumn(int64_t(block)) +
                     emitter.toIndex(ownRow + first);
      emitter.ifThen(column < shape.columns, copy);
    }
}

void RowCopier::copyScales(I32 scales, I32 step, I32 stage) {
  constexpr int64_t bytes = Shape::kStepProducts;
  // `getScaleWordOffset` for the thread's row.
  I32 word = own % 32 * 16 + own / 32 * bytes;
  for (int64_t block = 0; block < shape.getBlocks(); ++block) {
    Value to = emitter.advance(contract.scaleAddress(stage, block), word);
    emitter.copyWordAsync(to,
                          emitter.advance(weightScales[block], step * bytes));
  }
  emitter.store(
      scales,
      emitter.advance(contract.scaleAddress(stage, shape.getBlocks()), word),
      bytes);
}

RowCopier::State RowCopier::emitStep(const Sm100Contract::Tile &tile,
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

RowCopier::State RowCopier::emitTile(const Sm100Contract::Tile &tile,
                                     State state) {
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
  State end = contract.forTiles(copies.begin(pipeline.first()),
                                [&](Sm100Contract::Tile tile, State state) {
                                  return emitTile(tile, state);
                                });
  copies.publishAll(end);
}

} // namespace

void moec::emitSm100RowCopies(Sm100Contract &contract) {
  RowCopier(contract).emit();
}
