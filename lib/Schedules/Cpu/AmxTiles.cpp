//===- AmxTiles.cpp - products in AMX tile registers ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AmxTiles.h"

#include "Instructions.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using cpu::kTileSize;

/// Bytes of a row of a tile, which is a cache line.
static constexpr int64_t kTileRowBytes = 64;
/// Tile registers: sums `2 i + j` of weight tile i and input tile j, then the
/// two operands.
static constexpr int64_t kWeightTile = 4, kInputTile = 6, kNumTiles = 8;

AmxTiles::AmxTiles(KernelEmitter &emitter, Value input, Value weight,
                   int64_t rows, int64_t unrolledK)
    : emitter(emitter), b(emitter.b), input(input), weight(weight),
      element(cast<MemRefType>(weight.getType()).getElementType()),
      sizeK(cast<MemRefType>(weight.getType()).getShape().back()),
      step(kTileRowBytes * 8 / element.getIntOrFloatBitWidth()),
      unrolledK(unrolledK) {
  packed = emitter.scratch(
      {rows / kTileSize, sizeK / step * kTileSize, kTileSize}, b.getI32Type());
  sums = emitter.scratch({kTileSize, kTileSize}, element.isBF16()
                                                     ? Type(b.getF32Type())
                                                     : Type(b.getI32Type()));
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

void AmxTiles::call(StringRef intrinsic, ValueRange operands) {
  LLVM::CallIntrinsicOp::create(
      b, b.getStringAttr(("llvm.x86." + intrinsic).str()), operands);
}

Value AmxTiles::tileNumber(int64_t number) {
  return LLVM::ConstantOp::create(b, b.getI8Type(), number);
}

Value AmxTiles::bytes(int64_t count) {
  return arith::ConstantOp::create(b, b.getI64IntegerAttr(count));
}

SmallVector<Index> AmxTiles::getStrides(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  SmallVector<Index> values;
  memref::ExtractStridedMetadataOp metadata;
  for (auto [i, stride] : llvm::enumerate(strides)) {
    if (!ShapedType::isDynamic(stride)) {
      values.push_back(emitter.index(stride));
      continue;
    }
    // Weights that lie in memory of the caller's.
    if (!metadata)
      metadata = memref::ExtractStridedMetadataOp::create(b, memref);
    values.emplace_back(b, metadata.getStrides()[i]);
  }
  return values;
}

Value AmxTiles::getAddress(Value memref, ValueRange indices) {
  Index at = emitter.index(0);
  for (auto [index, stride] : llvm::zip(indices, getStrides(memref)))
    at = at + Index(b, index) * stride;
  Index base(b, memref::ExtractAlignedPointerAsIndexOp::create(b, memref));
  Index address =
      base + at * (getElementType(memref).getIntOrFloatBitWidth() / 8);
  Value number = arith::IndexCastOp::create(b, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, LLVM::LLVMPointerType::get(b.getContext()),
                                  number);
}

void AmxTiles::configure(int64_t inputRows) {
  // Palette 1, then the bytes of a row (16 bits each) of 16 registers from byte
  // 16 on, and their rows (8 bits each) from byte 48 on.
  SmallVector<int8_t> config(64, 0);
  config[0] = 1;
  for (int64_t i = 0; i < kNumTiles; ++i) {
    bool isWeight = i == kWeightTile || i == kWeightTile + 1;
    config[16 + 2 * i] = isWeight ? kTileRowBytes : 4 * inputRows;
    config[48 + i] = kTileSize;
  }
  Value memory = emitter.scratch({64}, b.getI8Type());
  auto type = VectorType::get(64, b.getI8Type());
  Value value = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef<int8_t>(config)));
  Value zero = emitter.index(0);
  vector::StoreOp::create(b, value, memory, zero);
  call("ldtilecfg", getAddress(memory, zero));
}

void AmxTiles::release() { call("tilerelease", {}); }

//===----------------------------------------------------------------------===//
// Input rows
//===----------------------------------------------------------------------===//

SmallVector<Value> AmxTiles::transpose(SmallVector<Value> vectors) {
  // Each round exchanges blocks of half the size across the diagonal.
  for (int64_t half = kTileSize / 2; half > 0; half /= 2) {
    SmallVector<int64_t> first, second;
    for (int64_t lane = 0; lane < kTileSize; ++lane) {
      bool isLow = (lane & half) == 0;
      first.push_back(isLow ? lane : kTileSize + lane - half);
      second.push_back(isLow ? lane + half : kTileSize + lane);
    }
    for (int64_t i = 0; i < kTileSize; ++i) {
      if (i & half)
        continue;
      Value x = vectors[i], y = vectors[i + half];
      vectors[i] = vector::ShuffleOp::create(b, x, y, first);
      vectors[i + half] = vector::ShuffleOp::create(b, x, y, second);
    }
  }
  return vectors;
}

void AmxTiles::packRows(Index count, function_ref<Index(Index)> getRow) {
  auto words = VectorType::get(kTileSize, b.getI32Type());
  emitter.loop(emitter.index(0), count, kTileSize, [&](Index first) {
    SmallVector<Index> rows;
    for (int64_t i = 0; i < kTileSize; ++i)
      rows.push_back(getRow(min(first + i, count - 1)));
    Index tile = first / kTileSize;
    emitter.loop(emitter.index(0), emitter.index(sizeK), step, [&](Index k) {
      SmallVector<Value> vectors;
      for (Index row : rows)
        vectors.push_back(vector::BitCastOp::create(
            b, words, emitter.loadElements(input, {row, k}, step)));
      Index line = k / (step / kTileSize);
      for (auto [i, vector] : llvm::enumerate(transpose(vectors)))
        vector::StoreOp::create(
            b, vector, packed,
            ValueRange{tile, line + int64_t(i), emitter.index(0)});
    });
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void AmxTiles::addProducts(int64_t numInputTiles, int64_t inputRowBytes,
                           function_ref<Value(int64_t, Index)> getInput,
                           ArrayRef<Indices> weightRows, int64_t stride) {
  int64_t numWeightTiles = weightRows.size();
  Index rowStride = getStrides(weight)[weightRows.front().size() - 1];
  Index elementBytes = emitter.index(element.getIntOrFloatBitWidth() / 8);
  Value weightRowBytes = arith::IndexCastOp::create(
      b, b.getI64Type(), rowStride * elementBytes * stride);
  for (int64_t i = 0; i < numWeightTiles; ++i)
    for (int64_t j = 0; j < numInputTiles; ++j)
      call("tilezero", tileNumber(2 * i + j));
  auto emitStep = [&](Index k) {
    for (int64_t j = 0; j < numInputTiles; ++j)
      call("tileloadd64",
           {tileNumber(kInputTile + j), getInput(j, k), bytes(inputRowBytes)});
    for (auto [i, row] : llvm::enumerate(weightRows)) {
      Indices indices(row);
      indices.push_back(k);
      call("tileloadd64", {tileNumber(kWeightTile + i),
                           getAddress(weight, indices), weightRowBytes});
      for (int64_t j = 0; j < numInputTiles; ++j)
        call(element.isBF16() ? "tdpbf16ps" : "tdpbssd",
             {tileNumber(2 * i + j), tileNumber(kWeightTile + i),
              tileNumber(kInputTile + j)});
    }
  };
  emitter.loop(emitter.index(0), emitter.index(sizeK), unrolledK, [&](Index k) {
    for (int64_t done = 0; done < unrolledK; done += step)
      emitStep(k + done);
  });
}

void AmxTiles::storeSums(int64_t i, int64_t j, int64_t rowBytes) {
  Index zero = emitter.index(0);
  call("tilestored64", {tileNumber(2 * i + j), getAddress(sums, {zero, zero}),
                        bytes(rowBytes)});
}

Value AmxTiles::loadSums(int64_t row) {
  auto type = VectorType::get(kTileSize, getElementType(sums));
  return vector::LoadOp::create(
      b, type, sums, ValueRange{emitter.index(row), emitter.index(0)});
}

F32 AmxTiles::convertSums(Value values) {
  if (element.isBF16())
    return {b, values};
  auto type = VectorType::get(kTileSize, b.getF32Type());
  return {b, arith::SIToFPOp::create(b, type, values)};
}

void AmxTiles::multiply(Index inputTile, int64_t numInputTiles,
                        ArrayRef<Indices> weightRows, int64_t stride,
                        Store store) {
  auto getInput = [&](int64_t j, Index k) {
    Index line = k / (step / kTileSize);
    return getAddress(packed, {inputTile + j, line, emitter.index(0)});
  };
  addProducts(numInputTiles, kTileRowBytes, getInput, weightRows, stride);
  for (int64_t i = 0, end = weightRows.size(); i < end; ++i)
    for (int64_t j = 0; j < numInputTiles; ++j) {
      storeSums(i, j, kTileRowBytes);
      SmallVector<Value> columns;
      for (int64_t column = 0; column < kTileSize; ++column)
        columns.push_back(loadSums(column));
      for (auto [r, row] : llvm::enumerate(transpose(columns)))
        store(i, j, r, convertSums(row));
    }
}

void AmxTiles::multiplyRow(Index inputRow, ArrayRef<Indices> weightRows,
                           int64_t stride, Store store) {
  constexpr int64_t wordBytes = 4;
  auto getInput = [&](int64_t, Index k) {
    return getAddress(input, {inputRow, k});
  };
  addProducts(1, wordBytes, getInput, weightRows, stride);
  for (int64_t i = 0, end = weightRows.size(); i < end; ++i) {
    storeSums(i, 0, wordBytes);
    store(i, 0, 0, convertSums(loadSums(0)));
  }
}
