//===- Sm90Producer.cpp - the copies of sm90.contract -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Producer of the Hopper gemm. One thread issues the copy of each k tile's
// weights, one box, as soon as a stage is free; with ids, while the launches
// before still run. Contiguous input rows are copied as a box too. Scattered
// rows are copied by the remaining warps, in swizzled chunks of 16 bytes. A
// thread waits for its chunks to arrive, makes them visible to the tensor cores
// and arrives at the barrier. It does so some k tiles later, or when no stage
// is free, to avoid waiting for copies that it has just issued.

#include "Sm90Scales.h"
#include "moec/Dialect/Moe/Fragments.h"

using namespace mlir;
using namespace moec;

namespace {

/// Issues the copies of a k tile of prepacked weights (one box) and of their
/// scales (another). Results of blocks past the end are never stored.
void copyUnits(Sm90Contract &contract, const ContractTile &tile, Value step,
               Value stage) {
  using moe::Fragments;
  AsyncEmitter &emitter = contract.emitter;
  const sm90::Contract &shape = contract.shape;
  Value full = contract.fullBarrier(stage);
  emitter.arriveExpecting(full, shape.getWeightBytes() + shape.getScaleBytes());
  Value block = emitter.divide(tile.firstColumn,
                               Fragments::kRows / shape.weightsPerColumn);
  auto copy = [&](Value to, int64_t map, int64_t unitBytes) {
    int64_t share = unitBytes / 2;
    int64_t pieces = shape.getUnits() * share / shape.getUnitPiece(share);
    SmallVector<Value> begin{block, emitter.i32(0), emitter.scale(step, pieces),
                             emitter.i32(0)};
    if (shape.isGrouped)
      begin.insert(begin.begin(), tile.group);
    emitter.copyBox(to, contract.tensorMap(map), begin, full,
                    /*areWeights=*/true);
  };
  copy(contract.stageAddress(stage), 0, shape.unitBytes);
  copy(emitter.advance(contract.sharedAddress(shape.getScaleOffset()),
                       emitter.scale(stage, shape.getScaleBytes())),
       1, shape.unitScaleBytes);
}

/// Issues the copy of a k tile's weights, which its stage waits for; one
/// thread.
void copyWeights(Sm90Contract &contract, const ContractTile &tile, Value step,
                 Value stage) {
  AsyncEmitter &emitter = contract.emitter;
  if (contract.shape.fromRegisters)
    return copyUnits(contract, tile, step, stage);
  SmallVector<Value> begin;
  if (contract.shape.isGrouped)
    begin.push_back(tile.group);
  if (contract.shape.weightsPerColumn == 2)
    begin.append({emitter.divide(tile.firstColumn, sm90::Contract::kPairedRows),
                  emitter.i32(0), emitter.i32(0)});
  else
    begin.push_back(tile.firstColumn);
  begin.push_back(emitter.scale(step, contract.shape.k));
  Value full = contract.fullBarrier(stage);
  emitter.arriveExpecting(full, contract.shape.getWeightBytes());
  emitter.copyBox(contract.stageAddress(stage), contract.tensorMap(0), begin,
                  full, /*areWeights=*/true);
}

/// Waits until consumers have read the stage's previous contents. All stages
/// are empty the first time around.
void waitForSpace(Sm90Contract &contract, RingPlace place) {
  Value before =
      arith::XOrIOp::create(contract.b, place.parity, contract.emitter.i32(1));
  contract.emitter.waitBarrier(contract.emptyBarrier(place.stage), before);
}

/// Whether the stage is free; i1.
Value hasSpace(Sm90Contract &contract, RingPlace place) {
  Value before =
      arith::XOrIOp::create(contract.b, place.parity, contract.emitter.i32(1));
  return contract.emitter.testBarrier(contract.emptyBarrier(place.stage),
                                      before);
}

//===----------------------------------------------------------------------===//
// Copies by tensor maps
//===----------------------------------------------------------------------===//

/// Issues the copy of a k tile's rows, which its stage waits for: with the
/// lowest BLOCK_M, from index `i` on, that holds them. One thread.
void copyRowBox(Sm90Contract &contract, const ContractTile &tile, Value step,
                Value stage, size_t i = 0) {
  AsyncEmitter &emitter = contract.emitter;
  const sm90::Contract &shape = contract.shape;
  auto copy = [&] {
    Value full = contract.fullBarrier(stage);
    int64_t units = shape.getUnits();
    emitter.arriveExpecting(full,
                            units * shape.getUnitRowBytes(shape.tileRows[i]));
    Value to = contract.stageAddress(stage, contract.getInputOffset());
    SmallVector<Value> begin{tile.firstRow, emitter.scale(step, shape.k)};
    if (units > 1)
      begin = {emitter.scale(step, units), tile.firstRow, emitter.i32(0)};
    emitter.copyBox(to, contract.tensorMap(shape.getFirstRowMap() + i), begin,
                    full,
                    /*areWeights=*/false);
  };
  if (i + 1 == shape.tileRows.size())
    return copy();
  Value isHigher = emitter.isLess(emitter.i32(shape.tileRows[i]), tile.rows);
  emitter.ifThen(
      isHigher, [&] { copyRowBox(contract, tile, step, stage, i + 1); }, copy);
}

/// One warp, because finding tiles takes a whole warp; the first lane copies.
class BoxCopier {
public:
  explicit BoxCopier(Sm90Contract &contract)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        shape(contract.shape),
        isFirst(contract.isEqual(emitter.lane(), emitter.i32(0))) {}

  /// Copies from pipeline state `first` on; returns the state at the end.
  RingPlace emit(RingPlace first);

private:
  /// After another gemm, rows have a thread of their own, because they wait.
  bool copiesRows() const { return shape.mapRows && !contract.hasBefore(); }
  /// Whether weights of the first round of stages are copied ahead: to copy
  /// rows, the thread has to wait for the launches before or until rows are
  /// quantized.
  bool copiesAhead() const {
    return (contract.op.getIds() || contract.quantizesRows()) && copiesRows();
  }
  /// Number of k tiles copied ahead; with the dynamic scheduler, only the first
  /// tile is known in advance.
  int64_t getStepsAhead() const {
    return contract.op.getTickets() ? std::min(shape.stages, shape.getSteps())
                                    : shape.stages;
  }
  void emitAhead();
  /// `done`: number of k tiles before this one; only needed with copies ahead.
  void emitStep(const ContractTile &tile, Value step, RingPlace place,
                Value done);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  Value isFirst;
};

void BoxCopier::emitAhead() {
  Sm90Contract::Items items = contract.getItems();
  int64_t most = llvm::divideCeil(getStepsAhead(), shape.getSteps());
  Value end = contract.addI32(items.first, emitter.scale(items.step, most));
  items.end = contract.minI32(items.end, end);
  contract.forTiles(
      items, emitter.i32(0), [&](ContractTile tile, ValueRange done) {
        Value left =
            arith::SubIOp::create(b, emitter.i32(getStepsAhead()), done[0]);
        Value steps = contract.minI32(emitter.i32(shape.getSteps()), left);
        emitter.forLoop(emitter.index(0), emitter.toIndex(steps), 1,
                        [&](Value index) {
                          Value step = emitter.toI32(index);
                          emitter.ifThen(isFirst, [&] {
                            copyWeights(contract, tile, step,
                                        contract.addI32(done[0], step));
                          });
                        });
        return SmallVector<Value>{contract.addI32(done[0], steps)};
      });
}

void BoxCopier::emitStep(const ContractTile &tile, Value step, RingPlace place,
                         Value done) {
  auto copyNow = [&] {
    waitForSpace(contract, place);
    copyWeights(contract, tile, step, place.stage);
  };
  emitter.ifThen(isFirst, [&] {
    if (copiesAhead())
      emitter.ifThen(emitter.isLess(emitter.i32(getStepsAhead() - 1), done),
                     copyNow);
    else
      copyNow();
    if (copiesRows())
      copyRowBox(contract, tile, step, place.stage);
  });
}

RingPlace BoxCopier::emit(RingPlace first) {
  if (copiesAhead()) {
    emitAhead();
    contract.waitInRole();
    if (contract.quantizesRows())
      contract.awaitBefore();
  }
  // The pipeline state and, with copies ahead, the number of k tiles.
  SmallVector<Value> init{first.stage, first.parity};
  if (copiesAhead())
    init.push_back(emitter.i32(0));
  auto emitTile = [&](ContractTile tile, ValueRange carried) {
    return emitter.forLoop(
        emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
        [&](Value step, ValueRange carried) {
          RingPlace place{carried[0], carried[1]};
          emitStep(tile, emitter.toI32(step), place, carried.back());
          RingPlace next = contract.next(place);
          SmallVector<Value> all{next.stage, next.parity};
          if (copiesAhead())
            all.push_back(emitter.scale(carried.back(), 1, 1));
          return all;
        });
  };
  // If other warps copy rows, one of them draws tiles.
  SmallVector<Value> end = contract.forTiles(
      init, emitTile, shape.hasRowThreads() ? Value() : isFirst);
  return {end[0], end[1]};
}

/// Copies boxes of rows that the gemm before has computed; waits for them when
/// the first tile is found. One warp. It arrives in place of all the threads
/// that copy rows of that gemm, as the barriers count them.
void copyAwaitedRows(Sm90Contract &contract, RingPlace first) {
  AsyncEmitter &emitter = contract.emitter;
  const sm90::Contract &shape = contract.shape;
  Value isFirst = contract.isEqual(emitter.lane(), emitter.i32(0));
  auto copyStep = [&](const ContractTile &tile, Value step, RingPlace place) {
    waitForSpace(contract, place);
    emitter.arrive(contract.fullBarrier(place.stage),
                   sm90::Contract::kRowThreads - 1);
    copyRowBox(contract, tile, step, place.stage);
  };
  // Beside the pipeline state: whether the wait is over.
  Value zero = emitter.i32(0);
  contract.forTiles({first.stage, first.parity, zero}, [&](ContractTile tile,
                                                           ValueRange carried) {
    emitter.ifThen(contract.isEqual(carried[2], zero),
                   [&] { contract.awaitBefore(); });
    SmallVector<Value> end = emitter.forLoop(
        emitter.index(0), emitter.index(shape.getSteps()), 1,
        carried.take_front(2), [&](Value step, ValueRange carried) {
          RingPlace place{carried[0], carried[1]};
          emitter.ifThen(isFirst,
                         [&] { copyStep(tile, emitter.toI32(step), place); });
          RingPlace next = contract.next(place);
          return SmallVector<Value>{next.stage, next.parity};
        });
    end.push_back(emitter.i32(1));
    return end;
  });
}

//===----------------------------------------------------------------------===//
// Copies of scattered rows
//===----------------------------------------------------------------------===//

class RowCopier {
public:
  explicit RowCopier(Sm90Contract &contract);
  /// Copies from pipeline state `first` on; returns the state at the end.
  RingPlace emit(RingPlace first);

private:
  static constexpr int64_t kSwizzleRows = 8;
  // A swizzle row has 8 chunks, or 4; the warps copy 12 rows at once, or 24.
  int64_t getRowChunks() const {
    return shape.swizzledBytes / sm90::Contract::kChunkBytes;
  }
  int64_t getRowsAtOnce() const {
    return sm90::Contract::kRowThreads / getRowChunks();
  }

  using State = RingCopies::State;

  static constexpr int64_t kTileValues = 4;
  int64_t getRowsPerThread() const {
    return shape.mapRows
               ? 0
               : llvm::divideCeil(shape.getMaxHeight(), getRowsAtOnce());
  }

  /// An item's tile, and the thread's rows of it; `otherwise` past the end.
  SmallVector<Value> findTileAndRows(const Sm90Contract::Items &items,
                                     Value item, ValueRange otherwise);
  State emitTile(const ContractTile &tile, ArrayRef<Value> rows,
                 RingPlace place);
  State emitStep(const ContractTile &tile, ArrayRef<Value> rows,
                 ArrayRef<Value> scaleSources, Value step, State state);
  /// Positions of the thread's rows in the input; i32.
  SmallVector<Value> findRows(const ContractTile &tile);
  void copyRows(const ContractTile &tile, ArrayRef<Value> rows, Value step,
                Value stage);
  /// Copies one swizzle row of a k tile. `places`: offsets of the thread's
  /// chunks in it, used cyclically over the rows.
  void copyUnitRows(const ContractTile &tile, ArrayRef<Value> rows, Value step,
                    int64_t unit, ArrayRef<Value> places);
  /// Offset of the thread's chunk in its row `i`, relative to the first row.
  Value getChunkOffset(int64_t i);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  RingCopies copies;
  Sm90Scales scales;
  Value input, source;
  /// Index of the thread; its first row of a tile, and its chunk in each row;
  /// i32.
  Value own, ownRow, ownChunk;
};

RowCopier::RowCopier(Sm90Contract &contract)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape),
      copies(emitter, shape.stages,
             [&](Value stage) { return contract.fullBarrier(stage); }),
      scales(contract), input(emitter.operand(contract.op.getInput())),
      source(emitter.operand(contract.op.getSource())) {
  constexpr int64_t others =
      sm90::Contract::kWarpgroup - sm90::Contract::kRowThreads;
  own = emitter.scale(emitter.warpgroupThread(), 1, -others);
  ownRow = emitter.divide(own, getRowChunks());
  ownChunk = emitter.remainder(own, getRowChunks());
}

RingPlace RowCopier::emit(RingPlace first) {
  Sm90Contract::Items items = contract.getItems();
  SmallVector<Value> init{first.stage, first.parity};
  SmallVector<Value> nothing(kTileValues + getRowsPerThread(), emitter.i32(0));
  init.append(findTileAndRows(items, items.first, nothing));
  Value draws = contract.isEqual(own, emitter.i32(0));
  SmallVector<Value> last = contract.forItems(
      init, draws,
      [&](Value, ValueRange carried, function_ref<Value()> findNext) {
        ContractTile tile{carried[2], carried[3], carried[4], carried[5]};
        SmallVector<Value> rows(carried.drop_front(2 + kTileValues));
        State end = emitTile(tile, rows, {carried[0], carried[1]});
        // Rows of the next tile are looked up while the last copies arrive.
        SmallVector<Value> found = findTileAndRows(items, findNext(), nothing);
        RingPlace place = copies.publishAll(end).place;
        SmallVector<Value> all{place.stage, place.parity};
        all.append(found);
        return all;
      });
  return {last[0], last[1]};
}

SmallVector<Value> RowCopier::findTileAndRows(const Sm90Contract::Items &items,
                                              Value item,
                                              ValueRange otherwise) {
  Value isThere = emitter.isLess(item, items.end);
  auto branch = scf::IfOp::create(b, otherwise.getTypes(), isThere,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  ContractTile tile = contract.findTile(item);
  SmallVector<Value> found{tile.group, tile.firstColumn, tile.firstRow,
                           tile.rows};
  if (!shape.mapRows)
    found.append(findRows(tile));
  scf::YieldOp::create(b, found);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, otherwise);
  return SmallVector<Value>(branch.getResults());
}

RowCopier::State RowCopier::emitTile(const ContractTile &tile,
                                     ArrayRef<Value> rows, RingPlace place) {
  SmallVector<Value> scaleSources;
  if (shape.copiesScales())
    scaleSources = scales.find(tile, own);
  State start = copies.begin(place);
  return State::unpack(emitter.forLoop(
      emitter.i32(0), emitter.i32(shape.getSteps()), 1, start.pack(),
      [&](Value step, ValueRange carried) {
        return emitStep(tile, rows, scaleSources, step, State::unpack(carried))
            .pack();
      }));
}

RowCopier::State RowCopier::emitStep(const ContractTile &tile,
                                     ArrayRef<Value> rows,
                                     ArrayRef<Value> scaleSources, Value step,
                                     State state) {
  RingPlace place = state.place;
  return copies.emitStep(
      state, [&] { return hasSpace(contract, place); },
      [&] { waitForSpace(contract, place); },
      [&] {
        if (!shape.mapRows)
          copyRows(tile, rows, step, place.stage);
        if (shape.copiesScales())
          scales.copy(tile, scaleSources, own, step, place.stage);
      });
}

SmallVector<Value> RowCopier::findRows(const ContractTile &tile) {
  // Rows past the end are not copied, and their sums are never read.
  Value last = emitter.scale(tile.rows, 1, -1);
  SmallVector<Value> rows;
  for (int64_t i = 0; i < shape.getMaxHeight(); i += getRowsAtOnce()) {
    Value row = contract.minI32(emitter.scale(ownRow, 1, i), last);
    Value position = contract.addI32(tile.firstRow, row);
    if (source)
      position = emitter.loadI32(source, emitter.toIndex(position));
    rows.push_back(position);
  }
  return rows;
}

Value RowCopier::getChunkOffset(int64_t i) {
  // The swizzle XORs the chunk index with the row index in 8 rows of 128 bytes;
  // with rows of 64 bytes, with the index of the pair of rows.
  Value row = emitter.remainder(emitter.scale(ownRow, 1, i), kSwizzleRows);
  row = emitter.divide(row, kSwizzleRows / getRowChunks());
  Value chunk = arith::XOrIOp::create(b, ownChunk, row);
  return contract.addI32(emitter.scale(ownRow, shape.swizzledBytes),
                         emitter.scale(chunk, sm90::Contract::kChunkBytes));
}

void RowCopier::copyRows(const ContractTile &tile, ArrayRef<Value> rows,
                         Value step, Value stage) {
  // Swizzled offsets repeat after two groups of rows that are copied at once.
  constexpr int64_t period = 2;
  assert(period * getRowsAtOnce() % kSwizzleRows == 0 &&
         "places come again after a whole pattern");
  Value begin = contract.stageAddress(stage, contract.getInputOffset());
  Value places[period];
  for (int64_t i = 0; i < period; ++i)
    places[i] = emitter.advance(begin, getChunkOffset(i * getRowsAtOnce()));
  for (int64_t unit = 0; unit < shape.getUnits(); ++unit) {
    if (unit)
      for (Value &place : places)
        place =
            emitter.advance(place, shape.getUnitRowBytes(shape.getMaxHeight()));
    copyUnitRows(tile, rows, step, unit, places);
  }
}

void RowCopier::copyUnitRows(const ContractTile &tile, ArrayRef<Value> rows,
                             Value step, int64_t unit, ArrayRef<Value> places) {
  int64_t width = shape.k / shape.getUnits();
  int64_t period = places.size();
  Value column =
      contract.addI32(emitter.scale(step, shape.k, unit * width),
                      emitter.scale(ownChunk, width / getRowChunks()));
  Value bytes;
  if (shape.depth % shape.k) {
    // A chunk is entirely inside or outside of the row, because rows are whole
    // chunks.
    Value isInside = emitter.isLess(column, emitter.i32(shape.depth));
    bytes = arith::SelectOp::create(
        b, isInside, emitter.i32(sm90::Contract::kChunkBytes), emitter.i32(0));
    column = arith::SelectOp::create(b, isInside, column, emitter.i32(0));
  }
  for (auto [i, row] : llvm::enumerate(rows)) {
    int64_t first = int64_t(i) * getRowsAtOnce();
    Value isThere = emitter.isLess(emitter.scale(ownRow, 1, first), tile.rows);
    emitter.ifThen(isThere, [&, i = i, row = row] {
      Value from = emitter.address(
          input, {emitter.toIndex(row), emitter.toIndex(column)});
      emitter.copyAsync(
          emitter.advance(places[i % period], first * shape.swizzledBytes),
          from, bytes);
    });
  }
}

} // namespace

void moec::emitSm90Producer(Sm90Contracts contracts) {
  Sm90Contract &first = contracts.front();
  AsyncEmitter &emitter = first.emitter;
  Value isFirst = first.isEqual(emitter.warpgroupWarp(), emitter.i32(0));
  auto emitBoxes = [&] {
    RingPlace place = first.getFirstPlace();
    for (Sm90Contract &contract : contracts)
      place = BoxCopier(contract).emit(place);
  };
  auto emitRows = [&] {
    first.waitInRole();
    if (first.quantizesRows())
      first.awaitBefore();
    RingPlace place = RowCopier(first).emit(first.getFirstPlace());
    if (contracts.size() == 1)
      return;
    Sm90Contract &second = contracts.back();
    if (!second.shape.mapRows) {
      second.awaitBefore();
      RowCopier(second).emit(place);
      return;
    }
    Value isNext = first.isEqual(emitter.warpgroupWarp(), emitter.i32(1));
    emitter.ifThen(isNext, [&] { copyAwaitedRows(second, place); });
  };
  if (!first.shape.hasRowThreads())
    return emitter.ifThen(isFirst, emitBoxes);
  emitter.ifThen(isFirst, emitBoxes, emitRows);
}
