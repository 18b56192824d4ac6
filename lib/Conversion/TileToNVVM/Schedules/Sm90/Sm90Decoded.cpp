//===- Sm90Decoded.cpp - products of weights in registers -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop with weights decoded into registers. A packed tile of 64 weight rows
// x 64 of K is 16 or 32 bytes of quantized values and some of scales per
// thread. They become the A registers of four wgmmas (Sm90HalfUnits.cpp), or of
// two for e4m3 (Sm90ByteUnits.cpp). While tensor cores work on one packed tile,
// the next one's values are loaded and unpacked. The last step, a
// multiplication per pair, waits for the wgmmas that read the same registers:
// with two consumers those of half a packed tile; with three, where wgmmas of
// two others run meanwhile, all.
//
// Few rows are multiplied by warps: these read the input rows themselves, and
// wait only for the registers that they need.

#include "Sm90Products.h"
#include "Sm90Units.h"

#include "../../InlinePtx.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <numeric>

using namespace mlir;
using namespace moec;
using moe::Fragments;
using sm90::Contract;

void OpenUnit::tie(ImplicitLocOpBuilder &b) {
  SmallVector<Value> all = numbers;
  llvm::append_range(all, scales);
  llvm::append_range(all, rests);
  llvm::append_range(all, addends);
  ArrayRef<Value> tied(all = tieWords(b, all));
  for (SmallVector<Value> *some : {&numbers, &scales, &rests, &addends}) {
    some->assign(tied.begin(), tied.begin() + some->size());
    tied = tied.drop_front(some->size());
  }
}

SmallVector<Value> PackedUnit::flatten() const {
  SmallVector<Value> values = codes;
  values.push_back(scales);
  return values;
}

PackedUnit PackedUnit::unflatten(ValueRange values) {
  return {llvm::to_vector(values.drop_back()), values.back()};
}

UnitReader::UnitReader(Sm90Contract &contract, Value consumer, int64_t height)
    : contract(contract), emitter(contract.emitter), shape(contract.shape),
      format(contract.op.getWeightQuantAttr()),
      decoder(
          format.numbers == Fragments::Numbers::E4M3
              ? makeByteDecoder(emitter, format)
              : makeHalfDecoder(emitter, format,
                                contract.sharedAddress(shape.getBookOffset()))),
      element(getElementType(emitter.operand(contract.op.getInput()))),
      width(shape.getProductWidth(height)), units(shape.getUnits()),
      blocks(shape.getBlocks(height)),
      rowBytes(shape.getUnitRowBytes(shape.mapRows ? height
                                                   : shape.getMaxHeight())) {
  // One half of each block for each half of the warps.
  constexpr int64_t runThreads = Contract::kWarpgroup / 2, rowThreads = 4;
  Value thread = emitter.warpgroupThread();
  Value run = emitter.divide(thread, runThreads);
  Value inRun = emitter.remainder(thread, runThreads);
  auto offset = [&](int64_t unitBytes, Value share, int64_t shareBytes) {
    Value block = emitter.scale(consumer, blocks * units * unitBytes);
    Value half = emitter.scale(run, units * unitBytes / 2);
    return contract.addI32(contract.addI32(block, half),
                           emitter.scale(share, shareBytes));
  };
  ownCodes = offset(shape.unitBytes, inRun, Contract::kChunkBytes);
  ownScales = offset(shape.unitScaleBytes, emitter.divide(inRun, rowThreads),
                     format.getQuadBytes());
}

bool UnitReader::isLoadedEarly(int64_t height) const {
  constexpr int64_t wordBytes = 4;
  int64_t words = format.getPieces() * Fragments::kThreadWords +
                  format.getQuadBytes() / wordBytes;
  int64_t sums = blocks * shape.getProductWidth(height) / 2;
  return shape.getConsumerRegisters() >=
         ptxas::kBesideEarlyWords + sums + 2 * words;
}

PackedUnit UnitReader::load(Value stage, int64_t turn) {
  int64_t unit = turn / blocks, block = turn % blocks;
  auto at = [&](int64_t unitBytes) {
    return block * units * unitBytes + unit * unitBytes / 2;
  };
  constexpr int64_t wordBytes = 4, codeBytes = Contract::kChunkBytes,
                    pieceBytes = Fragments::kPieceWords * wordBytes;
  int64_t scaleBytes = format.getQuadBytes();
  // Several loads if the scales exceed one load or are no power of two.
  int64_t scaleAlignment = std::gcd(scaleBytes, Contract::kChunkBytes);
  auto codesType =
      VectorType::get(Fragments::kThreadWords, emitter.b.getI32Type());
  Type scalesType = emitter.b.getI32Type();
  if (scaleBytes > wordBytes)
    scalesType = VectorType::get(scaleBytes / wordBytes, scalesType);
  SmallVector<Value> codes;
  for (int64_t piece = 0; piece < format.getPieces(); ++piece)
    codes.push_back(emitter.advance(
        contract.stageAddress(stage, at(shape.unitBytes) + piece * pieceBytes),
        ownCodes));
  Value scales = emitter.advance(
      contract.sharedAddress(shape.getScaleOffset() + at(shape.unitScaleBytes)),
      contract.addI32(emitter.scale(stage, shape.getScaleBytes()), ownScales));
  for (Value &piece : codes)
    piece = emitter.load(codesType, piece, codeBytes);
  return {codes, emitter.load(scalesType, scales, scaleAlignment)};
}

Value UnitReader::multiply(Value stage, int64_t turn, ArrayRef<Value> fragments,
                           Value sums, Value keeps, int64_t part,
                           int64_t parts) {
  // The first stage's descriptor is loop-invariant.
  Value first = emitter.describeTile(contract.sharedAddress(
      contract.getInputOffset() + turn / blocks * rowBytes));
  Value rows =
      contract.addI32(first, emitter.scale(stage, shape.getStageBytes() /
                                                      Contract::kChunkBytes));
  constexpr int64_t registers = Fragments::kRegisters;
  // The first wgmma of a chain, with `keeps`, comes with a fence.
  if (!keeps)
    emitter.fenceProducts();
  int64_t ofPart = format.getProducts() / parts;
  for (int64_t product = part * ofPart; product < (part + 1) * ofPart;
       ++product) {
    sums = emitter.multiplyAsync(
        element, width,
        fragments.slice((product - part * ofPart) * registers, registers), rows,
        shape.swizzledBytes, product, sums, keeps);
    keeps = {};
  }
  emitter.commitProducts();
  return sums;
}

/// Loads the first packed tile of the stage at that state, after its barrier.
static PackedUnit loadFirst(Sm90Contract &contract, UnitReader &reader,
                            RingPlace at) {
  contract.emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
  return reader.load(at.stage, 0);
}

/// Loads the first packed tile of the next k tile, at the end of one; after the
/// last k tile any values.
static PackedUnit loadNext(Sm90Contract &contract, UnitReader &reader,
                           Value step, RingPlace next, const PackedUnit &any) {
  AsyncEmitter &emitter = contract.emitter;
  ImplicitLocOpBuilder &b = contract.b;
  Value isLast =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, step,
                            emitter.index(contract.shape.getSteps() - 1));
  SmallVector<Value> kept = any.flatten();
  auto branch = scf::IfOp::create(b, ValueRange(kept).getTypes(), isLast,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, kept);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loadFirst(contract, reader, next).flatten());
  return PackedUnit::unflatten(branch.getResults());
}

ContractSums Sm90Products::multiplyDecoded(int64_t height,
                                           const ContractTile &tile,
                                           RingPlace place) {
  if (shape.multipliesByWarps(height))
    return multiplyByWarps(height, tile, place);
  UnitReader reader(contract, consumer, height);
  int64_t numBlocks = shape.getBlocks(height), turns = reader.getTurns();
  bool isEarly = reader.isLoadedEarly(height);
  // Half of a packed tile's wgmmas run while the other half is decoded. With
  // three consumers, wgmmas of two others run meanwhile, and one more wait
  // gains nothing (H200, gpt-oss-120b, 1024 tokens: 683 and 688 us).
  int64_t parts = shape.getConsumers() == Contract::kConsumers ? 2 : 1;
  SmallVector<Value> carried{place.stage, place.parity, emitter.i32(0)};
  carried.append(numBlocks,
                 emitter.makeSums(sumType, shape.getProductWidth(height)));
  int64_t numOwn = carried.size();
  if (isEarly)
    llvm::append_range(carried, loadFirst(contract, reader, place).flatten());
  // All lanes have read their words.
  auto giveBack = [&](Value stage) {
    emitter.warpBarrier();
    release(stage);
  };
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value step, ValueRange values) {
        RingPlace at{values[0], values[1]};
        SmallVector<Value> sums(values.slice(3, numBlocks));
        PackedUnit first =
            isEarly ? PackedUnit::unflatten(values.drop_front(numOwn))
                    : loadFirst(contract, reader, at);
        OpenUnit opened = reader.open(first);
        PackedUnit packed;
        auto load = [&](int64_t turn) {
          if (turn < turns)
            packed = reader.load(at.stage, turn);
        };
        if (isEarly)
          load(1);
        for (int64_t turn = 0; turn < turns; ++turn) {
          Value &sum = sums[turn % numBlocks];
          for (int64_t part = 0; part < parts; ++part) {
            // Waits for the same part of the packed tile before.
            emitter.waitProducts(parts - 1);
            sum = reader.multiply(at.stage, turn,
                                  reader.close(opened, part, parts), sum,
                                  /*keeps=*/{}, part, parts);
          }
          // All wgmmas of the k tile before are complete.
          if (turn == 0)
            ifBehindFirst(step, [&] { giveBack(values[2]); });
          if (!isEarly)
            load(turn + 1);
          if (turn + 1 < turns)
            opened = reader.open(packed);
          if (isEarly)
            load(turn + 2);
        }
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity, at.stage};
        all.append(sums);
        if (isEarly)
          llvm::append_range(
              all, loadNext(contract, reader, step, next, first).flatten());
        return all;
      });
  emitter.waitProducts(0);
  ContractSums sums{{end[0], end[1]}, {}};
  for (Value value : ArrayRef<Value>(end).slice(3, numBlocks))
    sums.blocks.push_back(emitter.getSums(value));
  giveBack(end[2]);
  return sums;
}

/// Promotion by scale group. The sums of a group are separate, in registers
/// that the next group's reuse, and are added, times its scale, when its wgmmas
/// are complete: one group after the other, each of which begins when those
/// before have been added.
ContractSums Sm90Products::multiplyDecodedPromoted(int64_t height,
                                                   const ContractTile &tile,
                                                   RingPlace place) {
  UnitReader reader(contract, consumer, height);
  int64_t numBlocks = shape.getBlocks(height), turns = reader.getTurns();
  int64_t width = shape.getProductWidth(height), numSums = width / 2;
  // With one block, successive packed tiles of a group accumulate in the same
  // registers. If groups are smaller, a packed tile has as many parts.
  int64_t parts = reader.getFormat().getGroups();
  int64_t chain =
      numBlocks > 1 || parts > 1 ? 1 : reader.getFormat().getGroupUnits();
  if (turns % chain)
    chain = 1;
  // Opaque zeros: `rows < 1` is never true, but LLVM and ptxas cannot prove it,
  // so that accumulators are not constant-folded.
  Value never = arith::ExtUIOp::create(
      b, b.getI32Type(), emitter.isLess(tile.rows, emitter.i32(1)));
  Value zero = arith::BitcastOp::create(b, b.getF32Type(), never);
  auto promoteBefore = [&](Value products, ArrayRef<Value> scales,
                           MutableArrayRef<Value> sums) {
    // Two of a thread's four sums of every 8 rows belong to each of its weight
    // rows.
    constexpr int64_t perOctet = 4;
    for (auto [i, product] : llvm::enumerate(emitter.getSums(products))) {
      Value scale =
          arith::BitcastOp::create(b, b.getF32Type(), scales[i % perOctet / 2]);
      sums[i] = math::FmaOp::create(b, product, scale, sums[i]);
    }
    llvm::copy(tieSums(b, sums), sums.begin());
  };
  SmallVector<Value> carried{
      place.stage,    place.parity,
      emitter.i32(0), emitter.makeSums(b.getF32Type(), width),
      emitter.i32(0), emitter.i32(0)};
  int64_t numOwn = carried.size();
  carried.append(numBlocks * numSums, zero);
  llvm::append_range(carried, loadFirst(contract, reader, place).flatten());
  auto giveBack = [&](Value stage) {
    emitter.warpBarrier();
    release(stage);
  };
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value step, ValueRange values) {
        RingPlace at{values[0], values[1]};
        Value products = values[3];
        SmallVector<Value> scales{values[4], values[5]};
        SmallVector<Value> sums(values.slice(numOwn, numBlocks * numSums));
        PackedUnit first = PackedUnit::unflatten(
            values.drop_front(numOwn + numBlocks * numSums));
        PackedUnit packed = first;
        OpenUnit opened = reader.open(packed);
        if (turns > 1)
          packed = reader.load(at.stage, 1);
        for (int64_t turn = 0; turn < turns; ++turn) {
          SmallVector<Value> fragments;
          for (int64_t part = 0; part < parts; ++part) {
            emitter.waitProducts(0);
            bool isNew = turn % chain == 0;
            if (isNew) {
              int64_t before = (turn + (part ? 0 : numBlocks - 1)) % numBlocks;
              promoteBefore(products, scales,
                            MutableArrayRef<Value>(sums).slice(before * numSums,
                                                               numSums));
            }
            if (part == 0)
              fragments = reader.close(opened);
            size_t ofPart = fragments.size() / parts;
            products = reader.multiply(
                at.stage, turn,
                ArrayRef<Value>(fragments).slice(part * ofPart, ofPart),
                products, isNew ? never : Value(), part, parts);
            constexpr int64_t rows = Fragments::kQuadRows;
            scales.assign(
                ArrayRef<Value>(opened.scales).slice(part * rows, rows));
            if (turn == 0 && part == 0)
              ifBehindFirst(step, [&] { giveBack(values[2]); });
          }
          if (turn + 1 < turns)
            opened = reader.open(packed);
          if (turn + 2 < turns)
            packed = reader.load(at.stage, turn + 2);
        }
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity, at.stage,
                               products,   scales[0],   scales[1]};
        all.append(sums);
        llvm::append_range(
            all, loadNext(contract, reader, step, next, first).flatten());
        return all;
      });
  emitter.waitProducts(0);
  SmallVector<Value> sums(
      ArrayRef<Value>(end).slice(numOwn, numBlocks * numSums));
  promoteBefore(end[3], {end[4], end[5]},
                MutableArrayRef<Value>(sums).take_back(numSums));
  giveBack(end[2]);
  ContractSums result{{end[0], end[1]}, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(sums).slice(block * numSums, numSums));
  return result;
}
