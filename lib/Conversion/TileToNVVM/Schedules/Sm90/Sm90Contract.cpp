//===- Sm90Contract.cpp - the schedule sm90.contract ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of the Hopper gemm: prologue, table of groups and static tile
// scheduler. The M tiles of all groups (Sm90Tiles.cpp) and the N tiles form a
// list: by group, then N tile, then M tile, so that weights are read from
// memory once. A CTA takes every gridDim-th entry, or the next one of the
// dynamic scheduler (Sm90Queue.cpp). The group of an entry is found in a table
// of first tiles, which each CTA builds at its start. Empty groups have no
// entries, nor have groups whose number of rows excludes them from this launch.
//
// The table is built from offsets, which a launch before writes, or from the
// caller's ids: each CTA then counts all ids, and copies weights while the
// launches before still run.

#include "Sm90Contract.h"
#include "Sm90Units.h"

#include "../../../Emission/RankIds.h"
#include "../../Emit.h"
#include "../Sm80/Sm80QuantizeRows.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "moec/Analysis/CtaOrder.h"
#include "moec/Analysis/Sm80.h"

using namespace mlir;
using namespace moec;

Sm90Contract::Sm90Contract(tile::ContractOp op, AsyncEmitter &emitter,
                           Sm90Contract *before)
    : op(op), emitter(emitter), b(emitter.b),
      shape(sm90::getShapeInKernel(op, op.getConfigAttr())),
      shared(before ? before->shared : emitter.dynamicShared()), before(before),
      quantization(sm90::getQuantization(op)) {
  if (before)
    firstMap = before->firstMap +
               int64_t(sm90::getTensorMaps(before->op, before->shape).size());
}

//===----------------------------------------------------------------------===//
// The ring
//===----------------------------------------------------------------------===//

RingPlace Sm90Contract::getFirstPlace() {
  return {emitter.i32(0), emitter.i32(0)};
}

RingPlace Sm90Contract::next(RingPlace place) {
  return nextPlace(emitter, place, shape.stages);
}

Value Sm90Contract::stageAddress(Value stage, int64_t offset) {
  return emitter.advance(shared,
                         emitter.scale(stage, shape.getStageBytes(), offset));
}

Value Sm90Contract::barrier(int64_t offset, int64_t before, Value number) {
  constexpr int64_t bytes = sm90::Contract::kBarrierBytes;
  return emitter.advance(shared,
                         emitter.scale(number, bytes, offset + before * bytes));
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Value Sm90Contract::entryAddress(Value group) {
  using sm90::Contract;
  return emitter.advance(sharedAddress(shape.getTableOffset()),
                         emitter.scale(group, Contract::kTableBytes));
}

Sm90Contract::Entry Sm90Contract::loadEntry(Value group) {
  using sm90::Contract;
  auto type = VectorType::get(4, b.getI32Type());
  Value entry = emitter.load(type, entryAddress(group), Contract::kTableBytes);
  auto get = [&](int64_t i) { return vector::ExtractOp::create(b, entry, i); };
  return {get(0), get(1), get(2), get(3)};
}

void Sm90Contract::storeEntry(Value group, Entry entry) {
  using sm90::Contract;
  auto type = VectorType::get(4, b.getI32Type());
  Value all = vector::FromElementsOp::create(
      b, type, ValueRange{entry.row, entry.tile, entry.rows, entry.heights});
  emitter.store(all, entryAddress(group), Contract::kTableBytes);
}

Value Sm90Contract::wordAddress(Value group, int64_t word) {
  return emitter.advance(entryAddress(group), word * kWordBytes);
}

Value Sm90Contract::loadOffset(Value group) {
  if (Value offsets = emitter.operand(op.getOffsets()))
    return emitter.loadI32(offsets, emitter.toIndex(group));
  // For a single group only the end is needed: the number of valid rows.
  return emitter.toI32(emitter.validTokens(op.getNumValidTokens()));
}

/// Runs in a warp that does not build the table; one stage per lane.
void Sm90Contract::initBarriers() {
  using sm90::Contract;
  static_assert(Contract::kMaxStages <= sm90::Contract::kWarp);
  Value stage = emitter.lane();
  emitter.ifThen(emitter.isLess(stage, emitter.i32(shape.stages)), [&] {
    // Arrivals: the thread that issues copies of boxes, once per box, and the
    // threads that copy rows or scales.
    emitter.initBarrier(fullBarrier(stage),
                        1 + shape.mapRows +
                            shape.hasRowThreads() * Contract::kRowThreads);
    emitter.initBarrier(emptyBarrier(stage), shape.getConsumers() *
                                                 Contract::kWarpgroup /
                                                 sm90::Contract::kWarp);
  });
  if (op.getTickets())
    initQueue();
  emitter.fenceBarriers();
}

void Sm90Contract::emitPrologue() {
  // In parallel warps: each part is a wait for memory or a long sequence of
  // instructions.
  emitter.ifThen(isEqual(emitter.thread(), emitter.i32(sm90::Contract::kWarp)),
                 [&] {
                   for (int64_t i = 0; i < emitter.getNumTensorMaps(); ++i)
                     emitter.prefetchTensorMap(i);
                 });
  emitter.ifThen(isEqual(emitter.warp(), emitter.i32(2)),
                 [&] { initBarriers(); });
  if (shape.hasBook)
    storeBook(emitter, moe::Fragments(op.getWeightQuantAttr()),
              sharedAddress(shape.getBookOffset()));
  auto emitSums = [&] {
    emitter.ifThen(isEqual(emitter.warp(), emitter.i32(0)),
                   [&] { emitTable(); });
  };
  if (op.getIds()) {
    Value ids = emitter.operand(op.getIds());
    Value slots = emitter.mul(emitter.tokens(), getColumns(ids));
    Value localTable = op.getLocalExperts()
                           ? emitter.constantTable(RankIds::getLocalTable(op))
                           : Value();
    RankIds experts(op, emitter, localTable);
    emitter.ifThen(
        areFewIds(slots), [&] { emitTableOfFew(experts, slots); },
        [&] {
          countIds(experts, slots);
          emitSums();
        });
  } else {
    emitter.waitForLaunchBefore();
    emitSums();
  }
  emitter.barrier();
}

void Sm90Contract::countIds(RankIds &experts, Value slots) {
  Value ids = emitter.operand(op.getIds());
  auto load = [&](Value slot) {
    return emitter.loadConstantI32(ids, {emitter.index(0), slot});
  };
  auto count = [&](Value id) {
    Value local = experts.localOf(id);
    emitter.ifThen(experts.isHere(local), [&] {
      emitter.addAtomically(emitter.i32(1), wordAddress(local, kRowsWord));
    });
  };
  // The first load overlaps with the clearing of counters.
  Value own = emitter.toIndex(emitter.thread());
  Value isThere =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, own, slots);
  auto first = scf::IfOp::create(b, b.getI32Type(), isThere,
                                 /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(first.thenBlock());
    scf::YieldOp::create(b, load(own));
    b.setInsertionPointToStart(first.elseBlock());
    scf::YieldOp::create(b, emitter.i32(-1));
  }
  // Includes the entry behind the last group, which lanes without a group read.
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.groups + 1), [&](Value group) {
        emitter.store(emitter.i32(0),
                      wordAddress(emitter.toI32(group), kRowsWord), kWordBytes);
      });
  emitter.barrier();
  count(first.getResult(0));
  // Several slots per iteration, so that their loads overlap.
  constexpr int64_t atOnce = 4;
  int64_t threads = emitter.getNumThreads();
  Value last = emitter.add(slots, -1);
  emitter.forLoop(
      emitter.add(own, threads), slots, atOnce * threads, [&](Value slot) {
        SmallVector<Value> loaded;
        for (int64_t i = 0; i < atOnce; ++i) {
          Value at = emitter.add(slot, i * threads);
          Value exists =
              arith::CmpIOp::create(b, arith::CmpIPredicate::slt, at, slots);
          loaded.push_back(arith::SelectOp::create(
              b, exists, load(emitter.min(at, last)), emitter.i32(-1)));
        }
        for (Value id : loaded)
          count(id);
      });
  emitter.barrier();
}

Value Sm90Contract::divideUp(Value x, Value y) {
  return arith::DivUIOp::create(b, emitter.scale(addI32(x, y), 1, -1), y);
}

SmallVector<Value> Sm90Contract::addUp(ArrayRef<Value> own, Value before) {
  SmallVector<Value> sums{emitter.i32(0)};
  for (Value value : own)
    sums.push_back(addI32(sums.back(), value));
  Value sum = sums.back();
  for (int64_t distance = 1; distance < sm90::Contract::kWarp; distance *= 2) {
    Value other = emitter.shuffleUp(sum, distance);
    Value hasOther = arith::CmpIOp::create(
        b, arith::CmpIPredicate::sge, emitter.lane(), emitter.i32(distance));
    sum = addI32(sum,
                 arith::SelectOp::create(b, hasOther, other, emitter.i32(0)));
  }
  Value start = addI32(before, arith::SubIOp::create(b, sum, sums.back()));
  for (Value &end : sums)
    end = addI32(start, end);
  return sums;
}

/// A lane loads the offsets, or counts, of adjacent groups and sums their
/// tiles; then lanes sum across the warp. Very many groups are processed in
/// parts.
void Sm90Contract::emitTable() {
  Value zero = emitter.i32(0);
  if (shape.groups == 1 && !op.getIds())
    return emitter.ifThen(isEqual(emitter.lane(), zero), [&] {
      Value rows = loadOffset(emitter.i32(1));
      Cut cut = cutGroup(rows);
      // The lane's index is the group's.
      Value group = emitter.lane();
      storeEntry(group, {zero, zero, rows, cut.heights});
      storeEntry(emitter.scale(group, 1, 1), {zero, cut.tiles, zero, zero});
    });
  int64_t share =
      std::min<int64_t>(llvm::divideCeil(shape.groups, sm90::Contract::kWarp),
                        ptxas::kGroupsAtOnce);
  if (share > ptxas::kCutAtOnce)
    share = llvm::alignTo(share, ptxas::kCutAtOnce);
  Value groups = emitter.i32(shape.groups);
  // Groups past the end are empty.
  auto atMost = [&](Value group) { return minI32(group, groups); };
  auto loadCount = [&](Value group) -> Value {
    if (op.getIds())
      return emitter.load(b.getI32Type(), wordAddress(atMost(group), kRowsWord),
                          kWordBytes);
    Value end = loadOffset(atMost(emitter.scale(group, 1, 1)));
    return arith::SubIOp::create(b, end, loadOffset(atMost(group)));
  };
  auto emitPart = [&](Value part, ValueRange before) {
    Value first =
        addI32(emitter.toI32(part), emitter.scale(emitter.lane(), share));
    auto groupAt = [&](int64_t i) { return emitter.scale(first, 1, i); };
    SmallVector<Value> rows, counts;
    if (op.getIds()) {
      for (int64_t i = 0; i < share; ++i)
        counts.push_back(loadCount(groupAt(i)));
      // Other lanes have read the entry behind the last group, too.
      emitter.warpBarrier();
      rows = addUp(counts, before[1]);
    } else {
      for (int64_t i = 0; i <= share; ++i)
        rows.push_back(loadOffset(atMost(groupAt(i))));
      for (int64_t i = 0; i < share; ++i)
        counts.push_back(arith::SubIOp::create(b, rows[i + 1], rows[i]));
    }
    Cuts cuts = cutGroups(counts, first, loadCount);
    SmallVector<Value> firstTiles = addUp(cuts.tiles, before[0]);
    for (int64_t i = 0; i < share; ++i) {
      Value group = emitter.scale(first, 1, i);
      emitter.ifThen(emitter.isLess(group, groups), [&] {
        storeEntry(group, {rows[i], firstTiles[i], counts[i], cuts.heights[i]});
      });
    }
    return SmallVector<Value>{
        emitter.broadcast(firstTiles.back(), sm90::Contract::kWarp - 1),
        emitter.broadcast(rows.back(), sm90::Contract::kWarp - 1)};
  };
  SmallVector<Value> end =
      emitter.forLoop(emitter.index(0), emitter.index(shape.groups),
                      share * sm90::Contract::kWarp, {zero, zero}, emitPart);
  // Only the number of tiles of this entry is read.
  auto storeEnd = [&] { storeEntry(groups, {zero, end[0], zero, zero}); };
  emitter.ifThen(isEqual(emitter.lane(), zero), storeEnd);
}

/// Finds the last group whose first tile is not after `tile`. Empty groups
/// share their first tile with the next group. In each round every lane tests
/// one group, and the range narrows to the groups before the next lane's.
Value Sm90Contract::findGroup(Value tile) {
  Value group = emitter.i32(0);
  for (int64_t left = shape.groups; left > 1;) {
    int64_t step = llvm::divideCeil(left, sm90::Contract::kWarp);
    Value own = addI32(group, emitter.scale(emitter.lane(), step));
    Value last = minI32(emitter.scale(group, 1, left - 1),
                        emitter.i32(shape.groups - 1));
    Value isInside =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, own, last);
    Value first = loadEntry(minI32(own, last)).tile;
    Value isBefore = arith::AndIOp::create(
        b, isInside,
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, first, tile));
    group =
        addI32(group, emitter.scale(emitter.countLanes(isBefore), step, -step));
    left = step;
  }
  return group;
}

ContractTile Sm90Contract::findTile(Value item) {
  int64_t panels = shape.getPanels();
  Value group = findGroup(emitter.divide(item, panels));
  Entry begin = loadEntry(group);
  Value endTile = loadEntry(emitter.scale(group, 1, 1)).tile;
  Value tiles = arith::SubIOp::create(b, endTile, begin.tile);

  Value inGroup =
      arith::SubIOp::create(b, item, emitter.scale(begin.tile, panels));
  Value firstTile;
  if (int64_t most = shape.getRasterGroupTiles()) {
    Value rasterGroup = emitter.divide(inGroup, most * panels);
    inGroup = emitter.remainder(inGroup, most * panels);
    firstTile = emitter.scale(rasterGroup, most);
    tiles =
        minI32(emitter.i32(most), arith::SubIOp::create(b, tiles, firstTile));
  }
  Value panel = arith::DivUIOp::create(b, inGroup, tiles);
  Value inPanel = arith::RemUIOp::create(b, inGroup, tiles);
  if (!op.getTickets()) {
    // The last M tile of an N tile may be lower. Each round of the CTAs starts
    // at another tile, so that no CTA takes all the low ones.
    Value ctas = NVVM::GridDimXOp::create(b, b.getI32Type());
    Value round = arith::DivUIOp::create(
        b, arith::SubIOp::create(b, item, inPanel), ctas);
    inPanel = arith::RemUIOp::create(b, addI32(inPanel, round), tiles);
  }
  if (firstTile)
    inPanel = addI32(firstTile, inPanel);
  Heights heights = unpackHeights(begin.heights);
  Value height = heights.low;
  Value first = arith::MulIOp::create(b, inPanel, height,
                                      arith::IntegerOverflowFlags::nsw);
  if (shape.hasTwoHeights()) {
    Value passed = minI32(inPanel, heights.higher);
    first =
        addI32(first, arith::MulIOp::create(b, passed, heights.more,
                                            arith::IntegerOverflowFlags::nsw));
    Value isHigher = emitter.isLess(inPanel, heights.higher);
    height = addI32(height, arith::SelectOp::create(b, isHigher, heights.more,
                                                    emitter.i32(0)));
  }
  Value left = arith::SubIOp::create(b, begin.rows, first);
  Value firstColumn = arith::MulIOp::create(b, panel, emitter.i32(shape.n),
                                            arith::IntegerOverflowFlags::nsw);
  if (Value first = emitter.operand(op.getFirstColumn()))
    firstColumn =
        addI32(firstColumn, arith::TruncIOp::create(b, b.getI32Type(), first));
  return {group, firstColumn, addI32(begin.row, first), minI32(left, height)};
}

Value Sm90Contract::getPlace(Value ctas) {
  Value cta = emitter.toI32(emitter.cta());
  // In a single gemm the first CTAs have a tile more, so that CTAs of the next
  // launch start on the SMs of the others first.
  plan::ExprAttr grid = op->getParentOfType<tile::KernelOp>().getGridAttr();
  if (!sm90::getPartner(op) || !grid || !grid.getExpr().isConstant())
    return cta;
  // The factor is prime to the number of CTAs, so that indices are unique.
  int64_t factor = getCtaFactor(grid.getExpr().constantValue());
  return arith::RemUIOp::create(b, emitter.scale(cta, factor), ctas);
}

Sm90Contract::Items Sm90Contract::getItems() {
  Value tiles = loadEntry(emitter.i32(shape.groups)).tile;
  Value ctas = NVVM::GridDimXOp::create(b, b.getI32Type());
  Value place = getPlace(ctas);
  if (before) {
    // The order continues across the gemms: a CTA with one tile less of the
    // first gemm begins with the second, whose weights need no wait.
    Value last = arith::RemUIOp::create(
        b, emitter.scale(tiles, before->shape.getPanels()), ctas);
    Value turned = arith::SubIOp::create(b, addI32(place, ctas), last);
    place = arith::RemUIOp::create(b, turned, ctas);
  }
  return {place, emitter.scale(tiles, shape.getPanels()), ctas};
}

//===----------------------------------------------------------------------===//
// Joined gemms
//===----------------------------------------------------------------------===//

/// The address of the single counter.
static Value getCounter(AsyncEmitter &emitter, Value counter) {
  return emitter.address(emitter.operand(counter), {emitter.index(0)});
}

void Sm90Contract::signal() {
  // Boxes may be copied from the results, which all lanes have stored.
  if (sm90::getPartner(op).getConfigAttr().getMapRows())
    emitter.fenceAsyncGlobal();
  // Once per CTA, because atomic additions to one address are serialized.
  emitter.consumerBarrier();
  Value isFirst =
      isEqual(emitter.thread(), emitter.i32(sm90::Contract::kWarpgroup));
  emitter.ifThen(isFirst, [&] {
    emitter.addReleasing(emitter.i32(1), getCounter(emitter, op.getSignals()));
  });
}

Value Sm90Contract::countRows() {
  Entry last = loadEntry(emitter.i32(shape.groups - 1));
  return addI32(last.row, last.rows);
}

void Sm90Contract::awaitAll() {
  Value signals = NVVM::GridDimXOp::create(b, b.getI32Type());
  if (quantization)
    signals = minI32(signals, countRows());
  emitter.awaitAtLeast(signals, getCounter(emitter, op.getAwaits()),
                       quantization ? sm90::Contract::kTicket : 0);
}

void Sm90Contract::awaitBefore() {
  emitter.ifThen(isEqual(emitter.lane(), emitter.i32(0)), [&] { awaitAll(); });
  // The waiting lane copies boxes itself; chunks are copied by all lanes.
  if (!shape.mapRows)
    emitter.warpBarrier();
}

//===----------------------------------------------------------------------===//
// Gemm after the quantization of its rows
//===----------------------------------------------------------------------===//

void Sm90Contract::quantizeRows() {
  if (!quantization)
    return;
  using sm90::Contract;
  constexpr int64_t perGroup = Contract::kWarpgroup / Contract::kWarp;
  int64_t warps = shape.getConsumers() * perGroup;
  // With few rows, each is quantized by a different CTA, and the remaining CTAs
  // have nothing to signal.
  Value ctas = NVVM::GridDimXOp::create(b, b.getI32Type());
  Value cta = emitter.toI32(emitter.cta());
  Value warp = emitter.scale(emitter.warp(), 1, -perGroup);
  Value first = addI32(
      arith::MulIOp::create(b, warp, ctas, arith::IntegerOverflowFlags::nsw),
      cta);
  Value rows = countRows();
  // Consumers hold no accumulators yet.
  sm80::Quantize held(quantization, quantization.getConfigAttr());
  int64_t vectors = sm80::Quantize::kMostHeld;
  if (!shape.hasReducedRegisters())
    vectors *= 2;
  emitHeldRows(quantization, emitter, /*convertsFloat8=*/true,
               emitter.toIndex(first),
               emitter.toIndex(emitter.scale(ctas, warps)),
               emitter.toIndex(rows), vectors / held.getHeldVectors());
  if (shape.mapRows)
    emitter.fenceAsyncGlobal();
  emitter.consumerBarrier();
  Value isFirst = isEqual(emitter.thread(), emitter.i32(Contract::kWarpgroup));
  emitter.ifThen(isFirst, [&] {
    emitter.ifThen(emitter.isLess(cta, rows), [&] {
      emitter.addReleasing(emitter.i32(1), getCounter(emitter, op.getAwaits()));
    });
    awaitAll();
  });
  // Consumers load scales of rows themselves.
  emitter.consumerBarrier()->setAttr(kBetweenPhasesAttr, b.getUnitAttr());
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// Zeroes the rows of a dense gemm that are not valid.
static void emitZeroRows(Sm90Contract &contract) {
  AsyncEmitter &emitter = contract.emitter;
  ImplicitLocOpBuilder &b = emitter.b;
  Value result = emitter.operand(contract.op.getResult());
  // Chunks of 16 bytes, or of a divisor of the columns.
  int64_t lanes = 16 / contract.shape.resultBytes;
  while (contract.shape.columns % lanes)
    lanes /= 2;
  Value pieces = emitter.index(contract.shape.columns / lanes);
  Value valid = emitter.validTokens(contract.op.getNumValidTokens());
  Value begin = emitter.mul(valid, pieces);
  Value end = emitter.mul(emitter.tokens(), pieces);
  Value threads = emitter.index(emitter.getNumThreads());
  Value own = emitter.add(emitter.mul(emitter.cta(), threads),
                          emitter.toIndex(emitter.thread()));
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  auto loop = scf::ForOp::create(b, emitter.add(begin, own), end,
                                 emitter.mul(ctas, threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value piece = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, piece, pieces);
  Value column = emitter.mul(arith::RemUIOp::create(b, piece, pieces), lanes);
  emitter.storeVector(emitter.splat(0.0, lanes), result, {row, column});
}

LogicalResult moec::emitSm90Contract(Operation *phase, KernelBody body) {
  auto op = cast<tile::ContractOp>(phase);
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  SmallVector<Sm90Contract, 2> contracts;
  contracts.reserve(2);
  contracts.emplace_back(op, emitter);
  Sm90Contract &first = contracts.front();
  if (tile::ContractOp partner = sm90::getPartner(op))
    contracts.emplace_back(partner, emitter, &first);
  if (first.shape.hasReducedRegisters())
    body.func->setAttr(kFormAttr,
                       tile::KernelFormAttr::get(
                           op.getContext(), body.kernel.getIndependent(),
                           body.kernel.getAhead(), body.kernel.getResident(),
                           first.shape.getRegisters()));
  first.emitPrologue();
  if (op.getNumValidTokens())
    emitZeroRows(first);
  LogicalResult status = success();
  emitter.ifThen(
      first.isEqual(emitter.warpgroup(), emitter.i32(0)),
      [&] {
        emitter.decreaseRegisters(first.shape.getProducerRegisters());
        emitSm90Producer(contracts);
        // All threads, before they exit.
        first.waitInRole();
      },
      [&] {
        emitter.increaseRegisters(first.shape.getConsumerRegisters());
        first.waitInRole();
        first.quantizeRows();
        status = emitSm90Consumer(contracts);
      });
  return status;
}
