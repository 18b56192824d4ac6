//===- Sm90WarpProducts.cpp - decoded weights times few rows ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop with mma.sync for few rows. wgmmas of a warpgroup wait for each
// other: all that were issued before must complete before a packed tile's
// registers may be written. mma.sync waits only for its operands, so that ptxas
// interleaves it with the unpacking of the next packed tile. Fragments and sums
// are the same, but each warp loads the input rows itself, so that they are
// read four times as often.

#include "Sm90Products.h"
#include "Sm90Units.h"

using namespace mlir;
using namespace moec;
using moe::Fragments;
using sm90::Contract;

/// Sums per thread of 16 weight rows by an octet of input rows.
constexpr int64_t kOctetSums = 4;

/// Lane l gives the address of row l % 8 of matrix l / 8, a chunk of a row.
constexpr int64_t kOctetRows = 8, kMatrices = 4;

SmallVector<Value> UnitReader::findRows(Value rows) {
  Value last = emitter.scale(rows, 1, -1);
  Value inOctet = emitter.remainder(emitter.lane(), kOctetRows);
  Value chunk = emitter.divide(emitter.lane(), kOctetRows);
  SmallVector<Value> offsets;
  for (int64_t first = 0; first < width; first += kOctetRows) {
    // Clamped: rows behind the last one are not written, and their sums are
    // never read.
    Value row = contract.minI32(emitter.scale(inOctet, 1, first), last);
    // The swizzle XORs the chunk index with the row index.
    Value place = arith::XOrIOp::create(emitter.b, chunk,
                                        emitter.remainder(row, kOctetRows));
    offsets.push_back(
        contract.addI32(emitter.scale(row, shape.swizzledBytes),
                        emitter.scale(place, Contract::kChunkBytes)));
  }
  return offsets;
}

void UnitReader::multiplyByWarps(Value stage, int64_t unit,
                                 ArrayRef<Value> rowOffsets,
                                 ArrayRef<SmallVector<Value>> fragments,
                                 MutableArrayRef<SmallVector<Value>> sums) {
  constexpr int64_t perProduct = 2, registers = Fragments::kRegisters;
  Value tile =
      contract.stageAddress(stage, contract.getInputOffset() + unit * rowBytes);
  int64_t chunks = shape.swizzledBytes / Contract::kChunkBytes;
  for (int64_t first = 0; first < chunks; first += kMatrices)
    for (auto [octet, offset] : llvm::enumerate(rowOffsets)) {
      Value moved = arith::XOrIOp::create(
          emitter.b, offset, emitter.i32(first * Contract::kChunkBytes));
      SmallVector<Value> rows =
          emitter.loadMatrices(emitter.advance(tile, moved));
      for (int64_t j = 0; j < kMatrices / perProduct; ++j)
        for (int64_t block = 0; block < blocks; ++block) {
          int64_t product = first / perProduct + j;
          MutableArrayRef<Value> own =
              MutableArrayRef<Value>(sums[block])
                  .slice(octet * kOctetSums, kOctetSums);
          SmallVector<Value> added = emitter.multiply(
              element,
              ArrayRef<Value>(fragments[block])
                  .slice(product * registers, registers),
              ArrayRef<Value>(rows).slice(j * perProduct, perProduct), own);
          llvm::copy(added, own.begin());
        }
    }
}

ContractSums Sm90Products::multiplyByWarps(int64_t height,
                                           const ContractTile &tile,
                                           RingPlace place) {
  UnitReader reader(contract, consumer, height);
  SmallVector<Value> rowOffsets = reader.findRows(tile.rows);
  int64_t numBlocks = shape.getBlocks(height), numSums = height / 2;
  SmallVector<Value> carried{place.stage, place.parity};
  carried.append(numBlocks * numSums, emitter.f32(0));
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value, ValueRange values) {
        RingPlace at{values[0], values[1]};
        SmallVector<SmallVector<Value>> sums;
        for (int64_t block = 0; block < numBlocks; ++block)
          sums.emplace_back(
              values.drop_front(2).slice(block * numSums, numSums));
        emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
        for (int64_t unit = 0; unit < shape.getUnits(); ++unit) {
          SmallVector<SmallVector<Value>> fragments;
          for (int64_t block = 0; block < numBlocks; ++block)
            fragments.push_back(reader.close(
                reader.open(reader.load(at.stage, unit * numBlocks + block))));
          reader.multiplyByWarps(at.stage, unit, rowOffsets, fragments, sums);
        }
        // All lanes have read their words.
        emitter.warpBarrier();
        release(at.stage);
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity};
        for (const SmallVector<Value> &some : sums)
          all.append(some);
        return all;
      });
  ContractSums result{{end[0], end[1]}, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(end).drop_front(2).slice(block * numSums, numSums));
  return result;
}
