//===- Sm90Producer.cpp - the copies of sm90.contract -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One thread starts the copy of each step's weights, one box. Input rows that
// follow one another are a box too. Else they lie anywhere: all threads copy
// them in pieces of 16 bytes, as the swizzle places them. A thread learns that
// its pieces are there by waiting for them, makes them visible to the tensor
// cores and arrives; so as not to wait for what it has just begun, it does so
// `kLag` steps later.

#include "Sm90Contract.h"

using namespace mlir;
using namespace moec;

namespace {

/// Starts the copy of the weights of a step; one thread.
void copyWeights(Sm90Contract &contract, const ContractTile &tile, Value step,
                 Value stage) {
  AsyncEmitter &emitter = contract.emitter;
  SmallVector<Value> begin;
  if (contract.shape.isGrouped)
    begin.push_back(tile.group);
  if (contract.shape.planes == 2)
    begin.push_back(emitter.i32(0));
  begin.push_back(tile.firstColumn);
  begin.push_back(emitter.scale(step, contract.shape.k));
  emitter.copyBox(contract.stageAddress(stage), emitter.tensorMap(0), begin,
                  contract.fullBarrier(stage));
}

/// Waits until consumers have read what was in a stage; the first turn finds
/// all stages empty.
void waitForSpace(Sm90Contract &contract, RingPlace place) {
  Value before =
      arith::XOrIOp::create(contract.b, place.parity, contract.emitter.i32(1));
  contract.emitter.waitBarrier(contract.emptyBarrier(place.stage), before);
}

//===----------------------------------------------------------------------===//
// Rows by tensor maps
//===----------------------------------------------------------------------===//

/// Starts the copy of a step's boxes, and says how much its stage waits for:
/// the rows of the lowest body from `i` on that holds them.
void copyBoxes(Sm90Contract &contract, const ContractTile &tile, Value step,
               Value stage, size_t i = 0) {
  AsyncEmitter &emitter = contract.emitter;
  const sm90::Contract &shape = contract.shape;
  auto copy = [&] {
    Value full = contract.fullBarrier(stage);
    emitter.arriveExpecting(full,
                            shape.getWeightBytes() +
                                shape.bodies[i] * sm90::Contract::kStepBytes);
    copyWeights(contract, tile, step, stage);
    emitter.copyBox(contract.stageAddress(stage, contract.getInputOffset()),
                    emitter.tensorMap(1 + i),
                    {tile.firstRow, emitter.scale(step, shape.k)}, full);
  };
  if (i + 1 == shape.bodies.size())
    return copy();
  Value isHigher = emitter.isLess(emitter.i32(shape.bodies[i]), tile.rows);
  emitter.ifThen(
      isHigher, [&] { copyBoxes(contract, tile, step, stage, i + 1); }, copy);
}

/// One thread.
void emitMappedProducer(Sm90Contract &contract) {
  AsyncEmitter &emitter = contract.emitter;
  RingPlace first = contract.getFirstPlace();
  contract.forTiles(
      {first.stage, first.parity}, [&](ContractTile tile, ValueRange places) {
        return emitter.forLoop(
            emitter.index(0), emitter.index(contract.shape.getSteps()), 1,
            places, [&](Value step, ValueRange carried) {
              RingPlace place{carried[0], carried[1]};
              waitForSpace(contract, place);
              copyBoxes(contract, tile, emitter.toI32(step), place.stage);
              RingPlace next = contract.next(place);
              return SmallVector<Value>{next.stage, next.parity};
            });
      });
}

//===----------------------------------------------------------------------===//
// Rows by all threads
//===----------------------------------------------------------------------===//

/// Steps between a copy and its arrival. Consumers free a step when they have
/// begun the next one, so that there must be two stages more.
constexpr int64_t kLag = 2;

class Sm90Producer {
public:
  explicit Sm90Producer(Sm90Contract &contract)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        shape(contract.shape), input(emitter.operand(contract.op.getInput())),
        source(emitter.operand(contract.op.getSource())),
        ownRow(emitter.divide(emitter.warpgroupThread(), kRowChunks)),
        ownChunk(emitter.remainder(emitter.warpgroupThread(), kRowChunks)) {}

  void emit();

private:
  // A step of a row has 8 chunks, so that a warpgroup copies 16 rows at once.
  static constexpr int64_t kRowChunks = 8;
  static constexpr int64_t kRowsAtOnce = 16;
  static constexpr int64_t kSwizzleRows = 8;

  /// What a thread carries from step to step.
  struct State {
    RingPlace place;
    /// The stage of the oldest copies that have not arrived, and how many steps
    /// have not; i32.
    Value oldest, open;

    SmallVector<Value> pack() const {
      return {place.stage, place.parity, oldest, open};
    }
    static State unpack(ValueRange values) {
      return {{values[0], values[1]}, values[2], values[3]};
    }
  };

  State emitTile(const ContractTile &tile, State state);
  State emitStep(const ContractTile &tile, ArrayRef<Value> rows, Value step,
                 State state);
  /// The addresses that the thread copies from, in the order of its rows.
  SmallVector<Value> findRows(const ContractTile &tile);
  void copyRows(const ContractTile &tile, ArrayRef<Value> rows, Value step,
                Value stage);
  void publish(Value stage) {
    emitter.fenceAsync();
    emitter.arrive(contract.fullBarrier(stage));
  }
  Value nextStage(Value stage) {
    return contract.next({stage, emitter.i32(0)}).stage;
  }

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  Value input, source;
  /// The thread's first row of a tile, and its chunk of all of them; i32.
  Value ownRow, ownChunk;
};

void Sm90Producer::emit() {
  State start{contract.getFirstPlace(), emitter.i32(0), emitter.i32(0)};
  State end = State::unpack(contract.forTiles(
      start.pack(), [&](ContractTile tile, ValueRange carried) {
        return emitTile(tile, State::unpack(carried)).pack();
      }));
  emitter.waitCopies(0);
  Value oldest = end.oldest;
  for (int64_t i = 0; i < kLag; ++i) {
    emitter.ifThen(emitter.isLess(emitter.i32(i), end.open),
                   [&] { publish(oldest); });
    oldest = nextStage(oldest);
  }
}

Sm90Producer::State Sm90Producer::emitTile(const ContractTile &tile,
                                           State state) {
  SmallVector<Value> rows = findRows(tile);
  return State::unpack(emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, state.pack(),
      [&](Value step, ValueRange carried) {
        return emitStep(tile, rows, emitter.toI32(step), State::unpack(carried))
            .pack();
      }));
}

SmallVector<Value> Sm90Producer::findRows(const ContractTile &tile) {
  // Rows past the end repeat the last one; nobody reads their sums.
  Value last = emitter.scale(tile.rows, 1, -1);
  Value column = emitter.toIndex(emitter.scale(ownChunk, shape.k / kRowChunks));
  SmallVector<Value> rows;
  for (int64_t i = 0; i < shape.getMaxBody(); i += kRowsAtOnce) {
    Value row = contract.minI32(emitter.scale(ownRow, 1, i), last);
    Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
    if (source)
      position = emitter.loadIndex(source, position);
    rows.push_back(emitter.address(input, {position, column}));
  }
  return rows;
}

Sm90Producer::State Sm90Producer::emitStep(const ContractTile &tile,
                                           ArrayRef<Value> rows, Value step,
                                           State state) {
  Value stage = state.place.stage;
  waitForSpace(contract, state.place);
  Value isFirst = contract.isEqual(emitter.warpgroupThread(), emitter.i32(0));
  emitter.ifThen(isFirst, [&] {
    emitter.arriveExpecting(contract.fullBarrier(stage),
                            shape.getWeightBytes());
    copyWeights(contract, tile, step, stage);
  });
  copyRows(tile, rows, step, stage);
  emitter.commitCopies();

  Value isLate = contract.isEqual(state.open, emitter.i32(kLag));
  emitter.ifThen(isLate, [&] {
    emitter.waitCopies(kLag);
    publish(state.oldest);
  });
  Value oldest =
      arith::SelectOp::create(b, isLate, nextStage(state.oldest), state.oldest);
  Value open = arith::SelectOp::create(b, isLate, state.open,
                                       emitter.scale(state.open, 1, 1));
  return {contract.next(state.place), oldest, open};
}

void Sm90Producer::copyRows(const ContractTile &tile, ArrayRef<Value> rows,
                            Value step, Value stage) {
  // 8 rows of 128 bytes; in them a chunk moves by the number of its row.
  Value chunk = arith::XOrIOp::create(b, ownChunk,
                                      emitter.remainder(ownRow, kSwizzleRows));
  Value offset =
      contract.addI32(emitter.scale(ownRow, sm90::Contract::kStepBytes),
                      emitter.scale(chunk, sm90::Contract::kChunkBytes));
  Value to = emitter.advance(
      contract.stageAddress(stage, contract.getInputOffset()), offset);
  Value move = emitter.scale(step, sm90::Contract::kStepBytes);
  Value bytes;
  if (shape.depth % shape.k) {
    // A chunk is inside or outside of the row, for rows are whole chunks.
    Value column =
        contract.addI32(emitter.scale(step, shape.k),
                        emitter.scale(ownChunk, shape.k / kRowChunks));
    Value isInside = emitter.isLess(column, emitter.i32(shape.depth));
    bytes = arith::SelectOp::create(
        b, isInside, emitter.i32(sm90::Contract::kChunkBytes), emitter.i32(0));
    move = arith::SelectOp::create(b, isInside, move, emitter.i32(0));
  }
  for (auto [i, row] : llvm::enumerate(rows)) {
    int64_t first = i * kRowsAtOnce;
    auto copy = [&, row = row] {
      emitter.copyAsync(emitter.advance(to, first * sm90::Contract::kStepBytes),
                        emitter.advance(row, move), bytes);
    };
    if (i == 0)
      copy();
    else
      emitter.ifThen(emitter.isLess(emitter.i32(first), tile.rows), copy);
  }
}

} // namespace

void moec::emitSm90Producer(Sm90Contract &contract) {
  if (!contract.shape.mapRows) {
    Sm90Producer(contract).emit();
    return;
  }
  AsyncEmitter &emitter = contract.emitter;
  emitter.ifThen(contract.isEqual(emitter.warpgroupThread(), emitter.i32(0)),
                 [&] { emitMappedProducer(contract); });
}
