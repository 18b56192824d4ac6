//===- QuantLayout.cpp - where the scales of a tensor lie -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/QuantLayout.h"

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace moec::moe {

ScaleGroup getScaleGroup(QuantAttr quant) {
  ArrayRef<int64_t> block = quant.getBlock();
  return block.empty()
             ? ScaleGroup::of(quant.getGranularity(), 0, 0)
             : ScaleGroup::of(quant.getGranularity(), block[0], block[1]);
}

int64_t getNumScaleColumns(QuantAttr quant, int64_t width) {
  return getScaleGroup(quant).countColumns(width);
}

int64_t getNumScaleRows(QuantAttr quant, int64_t rows,
                        WeightLayoutAttr layout) {
  return getScaleGroup(quant).countRows(rows, hasHalves(layout));
}

int64_t getScaleRow(QuantAttr quant, int64_t row, int64_t rows,
                    WeightLayoutAttr layout) {
  return getScaleGroup(quant).rowOf(row, rows, hasHalves(layout));
}

int64_t getScaleColumn(QuantAttr quant, int64_t element) {
  return getScaleGroup(quant).columnOf(element);
}

int64_t getCommonColumns(QuantAttr a, QuantAttr b) {
  static_assert(ScaleGroup::kAll == 0, "which divides by nothing");
  int64_t common = ScaleGroup::kAll;
  for (QuantAttr quant : {a, b})
    if (quant)
      common = std::gcd(common, getScaleGroup(quant).columns);
  return common;
}

bool areKeptAsBF16(QuantAttr quant) {
  return quant.getPacking() == Packing::BF16;
}

QuantAttr keepAsBF16(QuantAttr quant) {
  bool isOfRows = quant.getGranularity() == Granularity::Token ||
                  quant.getGranularity() == Granularity::Tensor;
  if (!isOfRows && !quant.getPowerOfTwo())
    return {};
  return QuantAttr::get(
      quant.getContext(), quant.getStorage(), quant.getScale(),
      quant.getGranularity(), quant.getBlock(), quant.getZeroPoint(),
      quant.getDynamic(), Packing::BF16, quant.getSecondScale(),
      quant.getPowerOfTwo(), quant.getMinimum());
}

bool areTimesScales(QuantAttr quant) {
  return areKeptAsBF16(quant) && quant.getPowerOfTwo();
}

/// Whether memory elements are bytes with one or two elements each.
static bool isPacked(QuantAttr quant) {
  return quant.getPacking() != Packing::None && !areKeptAsBF16(quant);
}

int64_t getElementBits(Type storage) {
  constexpr int64_t ofCodeBook = 4;
  return isCodeBook(storage) ? ofCodeBook : storage.getIntOrFloatBitWidth();
}

int64_t getStorageBits(QuantAttr quant) {
  constexpr int64_t ofBF16 = 16;
  if (areKeptAsBF16(quant))
    return ofBF16;
  int64_t bits = getElementBits(quant.getStorage());
  return isPacked(quant) ? bits : llvm::alignTo(bits, 8);
}

int64_t getRowBytes(QuantAttr quant, int64_t width) {
  return llvm::divideCeil(width * getStorageBits(quant), 8);
}

Type getMemoryType(QuantAttr quant) {
  if (areKeptAsBF16(quant))
    return BFloat16Type::get(quant.getContext());
  return isPacked(quant) ? IntegerType::get(quant.getContext(), 8)
                         : quant.getStorage();
}

/// Quantized elements per memory element.
static int64_t getPacked(QuantAttr quant) {
  return quant && isPacked(quant) ? 8 / getStorageBits(quant) : 1;
}

int64_t getRowLength(QuantAttr quant, int64_t width) {
  return llvm::divideCeil(width, getPacked(quant));
}

int64_t getRowWidth(QuantAttr quant, int64_t length) {
  return length * getPacked(quant);
}

bool hasZeros(QuantAttr quant) {
  return quant.getZeroPoint() || quant.getMinimum();
}

Type getZeroType(QuantAttr quant) {
  return quant.getMinimum() ? quant.getScale()
                            : IntegerType::get(quant.getContext(), 8);
}

int64_t getImpliedZeroPoint(QuantAttr quant) {
  constexpr int64_t middle = 8;
  return quant.getStorage().isInteger(4) && !hasZeros(quant) ? middle : 0;
}

ElementOffset getElementOffset(QuantAttr quant, int64_t element) {
  int64_t bit = element * getStorageBits(quant);
  return {bit / 8, bit % 8};
}

int64_t getNumSecondScales(QuantAttr quant, int64_t rows,
                           WeightLayoutAttr layout) {
  if (!quant.getSecondScale())
    return 0;
  if (isPrepacked(quant.getPacking()))
    return rows;
  return hasHalves(layout) ? 2 : 1;
}

int64_t getSecondScale(QuantAttr quant, int64_t projection,
                       WeightLayoutAttr layout) {
  if (!quant.getSecondScale() || !hasHalves(layout))
    return 0;
  return layout.getOrder() == GateUpOrder::GateUp ? projection : 1 - projection;
}

float getMinMagnitude(QuantAttr quant) {
  bool isTokenOfFloats = quant.getGranularity() == Granularity::Token &&
                         isa<Float8E4M3FNType>(quant.getStorage());
  return isTokenOfFloats ? 1.0f / 512 : 1e-10f;
}

float getLargestValue(QuantAttr quant) {
  return quant.getStorage().isInteger(8) ? 127.0f : 448.0f;
}

bool isBlockFp8(QuantAttr input, QuantAttr weight) {
  constexpr int64_t size = 128;
  auto is = [&](QuantAttr quant, int64_t rows) {
    return quant && isa<Float8E4M3FNType>(quant.getStorage()) &&
           getScaleGroup(quant) == ScaleGroup{rows, size};
  };
  return is(input, 1) && is(weight, size);
}

} // namespace moec::moe
