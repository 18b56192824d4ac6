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
static SmallVector<Value> getBox(Sm100Contract &contract, int64_t block,
                                 Value step) {
  TensorEmitter &emitter = contract.emitter;
  SmallVector<Value> begin;
  if (contract.group)
    begin.push_back(emitter.toI32(contract.group));
  if (contract.shape.weightsPerColumn == 2) {
    bool isUpFirst =
        contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    begin.push_back(emitter.i32(isUpFirst ? 1 - block : block));
  }
  begin.push_back(emitter.toI32(contract.getBlockColumn(block)));
  begin.push_back(emitter.scale(step, Shape::kStep));
  return begin;
}

void moec::emitSm100WeightCopies(Sm100Contract &contract) {
  TensorEmitter &emitter = contract.emitter;
  const Shape &shape = contract.shape;
  RingPlace first = contract.getFirstPlace();
  contract.forTiles({first.stage, first.parity}, [&](Sm100Contract::Tile,
                                                     ValueRange carried) {
    return emitter.forLoop(
        emitter.i32(0), emitter.i32(shape.getSteps()), 1, carried,
        [&](Value step, ValueRange carried) {
          RingPlace place{carried[0], carried[1]};
          emitter.waitBarrier(contract.emptyBarrier(place.stage),
                              contract.getTurnBefore(place));
          Value full = contract.fullBarrier(place.stage);
          emitter.arriveExpecting(full, shape.getWeightBytes());
          for (int64_t block = 0; block < shape.getBlocks(); ++block)
            emitter.copyBox(contract.stageAddress(
                                place.stage, block * shape.getBlockBytes()),
                            emitter.tensorMap(0), getBox(contract, block, step),
                            full,
                            /*areWeights=*/true);
          RingPlace next = contract.next(place, shape.stages);
          return SmallVector<Value>{next.stage, next.parity};
        });
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
  static constexpr int64_t kSwizzleRows = 8;
  static_assert(kRowsAtOnce % kSwizzleRows == 0 &&
                    Shape::kRowUnit % kRowsAtOnce == 0,
                "a thread's chunk is at the same place in all of its rows");
  static_assert(Shape::kCopyThreads == Shape::kBlockRows &&
                    Shape::kMaxRows <= Shape::kBlockRows,
                "a thread has a row of scales of each block");

  using State = RingCopies::State;

  State emitTile(const Sm100Contract::Tile &tile, State state);
  State emitStep(const Sm100Contract::Tile &tile, ArrayRef<Value> rows,
                 Value scales, Value step, State state);

  /// Position in the input of a row of the tile (i32), index.
  Value findPosition(const Sm100Contract::Tile &tile, Value row);
  /// Address of the words of scales of the thread's row of a block.
  Value findWeightScales(int64_t block);
  /// Address of the thread's chunk of its first row of a block.
  Value findWeights(int64_t block);
  /// Copies the rows of a k tile; `place`: offset of the thread's chunk in a
  /// stage.
  void copyRows(const Sm100Contract::Tile &tile, ArrayRef<Value> rows,
                Value step, Value stage, Value place);
  void copyWeights(Value step, Value stage, Value place);
  void copyScales(Value scales, Value step, Value stage);
  /// The four scales of a k tile of an input row, from `from` on, as a word.
  Value loadRowScales(Value from, Value step);

  Sm100Contract &contract;
  TensorEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const Shape &shape;
  RingCopies copies;
  Value input, inputScale, source;
  /// Index of the thread; its first row of a tile, and its chunk in each row;
  /// i32.
  Value own, ownRow, ownChunk;
  /// Addresses per block of weights; `weights` only for weights that no tensor
  /// map copies.
  SmallVector<Value> weightScales, weights;
};

RowCopier::RowCopier(Sm100Contract &contract)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape),
      copies(emitter, shape.stages,
             [&](Value stage) { return contract.fullBarrier(stage); }),
      input(emitter.operand(contract.op.getInput())),
      inputScale(emitter.operand(contract.op.getInputScale())),
      source(emitter.operand(contract.op.getSource())),
      own(emitter.warpgroupThread()), ownRow(emitter.divide(own, kRowChunks)),
      ownChunk(emitter.remainder(own, kRowChunks)) {
  for (int64_t block = 0; block < shape.getBlocks(); ++block) {
    weightScales.push_back(findWeightScales(block));
    if (!shape.areBytes)
      weights.push_back(findWeights(block));
  }
}

Value RowCopier::findWeightScales(int64_t block) {
  // Columns past the end repeat the last one; their sums are never read.
  Value column =
      emitter.add(contract.getBlockColumn(block), emitter.toIndex(own));
  if (!contract.areWhole())
    column = emitter.min(column, emitter.index(shape.columns - 1));
  SmallVector<Value> indices = contract.getLeading(
      getScaleRow(emitter, contract.op, contract.getProjection(block), column));
  indices.push_back(emitter.index(0));
  return emitter.address(emitter.operand(contract.op.getWeightScale()),
                         indices);
}

Value RowCopier::findWeights(int64_t block) {
  Value column =
      emitter.add(contract.getBlockColumn(block), emitter.toIndex(ownRow));
  SmallVector<Value> indices = contract.getLeading(getWeightRow(
      emitter, contract.op, contract.getProjection(block), column));
  indices.push_back(
      emitter.toIndex(emitter.scale(ownChunk, shape.getChunkWeightBytes())));
  return emitter.address(emitter.operand(contract.op.getWeight()), indices);
}

Value RowCopier::findPosition(const Sm100Contract::Tile &tile, Value row) {
  // Rows past the end repeat the last one; their sums are never read.
  Value last = emitter.scale(tile.rows, 1, -1);
  Value inside = b.createOrFold<arith::MinSIOp>(row, last);
  Value position = emitter.add(tile.firstRow, emitter.toIndex(inside));
  return source ? emitter.loadIndex(source, position) : position;
}

Value RowCopier::loadRowScales(Value from, Value step) {
  constexpr int64_t signBits = 1, otherBits = 24, byte = 8, bytes = 4;
  constexpr int64_t count = Shape::kStepProducts;
  Value loaded = emitter.load(
      VectorType::get(count, b.getI32Type()),
      emitter.advance(from, emitter.scale(step, count * bytes)), count * bytes);
  // A power of two consists of its exponent; a NaN may have a sign.
  I32 word{b, emitter.i32(0)};
  for (int64_t i = 0; i < count; ++i) {
    I32 bits{b, vector::ExtractOp::create(b, loaded, i)};
    word = word | ((bits << signBits) >> otherBits) << i * byte;
  }
  return word;
}

void RowCopier::copyRows(const Sm100Contract::Tile &tile, ArrayRef<Value> rows,
                         Value step, Value stage, Value place) {
  Value to = emitter.advance(
      contract.stageAddress(stage, shape.getWeightBytes()), place);
  Value column = contract.addI32(emitter.scale(step, Shape::kStep),
                                 emitter.scale(ownChunk, Shape::kChunkBytes));
  for (auto [i, row] : llvm::enumerate(rows)) {
    int64_t first = int64_t(i) * kRowsAtOnce;
    Value isThere = emitter.isLess(emitter.scale(ownRow, 1, first), tile.rows);
    emitter.ifThen(isThere, [&, row = row] {
      emitter.copyAsync(emitter.advance(to, first * Shape::kStepBytes),
                        emitter.address(input, {row, emitter.toIndex(column)}),
                        /*bytes=*/Value());
    });
  }
}

void RowCopier::copyWeights(Value step, Value stage, Value place) {
  bool isInterleaved =
      contract.op.getLayout() &&
      contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved;
  int64_t pitch = shape.getWeightRowBytes() * (isInterleaved ? 2 : 1);
  int64_t bytes = shape.getChunkWeightBytes();
  Value to = emitter.advance(contract.stageAddress(stage), place);
  Value ahead = emitter.scale(step, kRowChunks * bytes);
  for (auto [block, from] : llvm::enumerate(weights))
    for (int64_t first = 0; first < Shape::kBlockRows; first += kRowsAtOnce) {
      auto copy = [&, block = int64_t(block), from = from] {
        emitter.copyWordAsync(
            emitter.advance(to, block * shape.getBlockBytes() +
                                    first * Shape::kStepBytes),
            emitter.advance(emitter.advance(from, first * pitch), ahead),
            bytes);
      };
      if (contract.areWhole()) {
        copy();
        continue;
      }
      Value column =
          emitter.add(contract.getBlockColumn(int64_t(block)),
                      emitter.toIndex(emitter.scale(ownRow, 1, first)));
      Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, column,
                                           emitter.index(shape.columns));
      emitter.ifThen(exists, copy);
    }
}

void RowCopier::copyScales(Value scales, Value step, Value stage) {
  constexpr int64_t bytes = Shape::kStepProducts;
  // `getScaleWordOffset` for the thread's row.
  Value word = contract.addI32(emitter.scale(emitter.remainder(own, 32), 16),
                               emitter.scale(emitter.divide(own, 32), bytes));
  for (int64_t block = 0; block < shape.getBlocks(); ++block)
    emitter.copyWordAsync(
        emitter.advance(contract.scaleAddress(stage, block), word),
        emitter.advance(weightScales[block], emitter.scale(step, bytes)));
  emitter.store(
      scales,
      emitter.advance(contract.scaleAddress(stage, shape.getBlocks()), word),
      bytes);
}

RowCopier::State RowCopier::emitStep(const Sm100Contract::Tile &tile,
                                     ArrayRef<Value> rows, Value scales,
                                     Value step, State state) {
  RingPlace place = state.place;
  Value empty = contract.emptyBarrier(place.stage);
  Value turn = contract.getTurnBefore(place);
  return copies.emitStep(
      state, [&] { return emitter.testBarrier(empty, turn); },
      [&] { emitter.waitBarrier(empty, turn); },
      [&] {
        Value chunk = arith::XOrIOp::create(
            b, ownChunk, emitter.remainder(ownRow, kSwizzleRows));
        Value to = contract.addI32(emitter.scale(ownRow, Shape::kStepBytes),
                                   emitter.scale(chunk, Shape::kChunkBytes));
        copyRows(tile, rows, step, place.stage, to);
        if (!shape.areBytes)
          copyWeights(step, place.stage, to);
        copyScales(scales, step, place.stage);
      });
}

RowCopier::State RowCopier::emitTile(const Sm100Contract::Tile &tile,
                                     State state) {
  SmallVector<Value> rows;
  for (int64_t i = 0; i < shape.m; i += kRowsAtOnce)
    rows.push_back(findPosition(tile, emitter.scale(ownRow, 1, i)));
  Value scales =
      emitter.address(inputScale, {findPosition(tile, own), emitter.index(0)});
  SmallVector<Value> init = state.pack();
  init.push_back(loadRowScales(scales, emitter.i32(0)));
  Value last = emitter.i32(shape.getSteps() - 1);
  return State::unpack(emitter.forLoop(
      emitter.i32(0), emitter.i32(shape.getSteps()), 1, init,
      [&](Value step, ValueRange carried) {
        Value next =
            b.createOrFold<arith::MinSIOp>(emitter.scale(step, 1, 1), last);
        Value ahead = loadRowScales(scales, next);
        SmallVector<Value> results =
            emitStep(tile, rows, carried.back(), step, State::unpack(carried))
                .pack();
        results.push_back(ahead);
        return results;
      }));
}

void RowCopier::emit() {
  State start = copies.begin(contract.getFirstPlace());
  copies.publishAll(State::unpack(contract.forTiles(
      start.pack(), [&](Sm100Contract::Tile tile, ValueRange carried) {
        return emitTile(tile, State::unpack(carried)).pack();
      })));
}

} // namespace

void moec::emitSm100RowCopies(Sm100Contract &contract) {
  RowCopier(contract).emit();
}
