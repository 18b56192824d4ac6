//===- QuantLayout.cpp - where the scales of a tensor lie -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace moec::moe {

/// Gate and up rows are two halves.
static bool hasHalves(WeightLayoutAttr layout) {
  return layout && layout.getOrder() != GateUpOrder::Interleaved;
}

ScaleGroup getScaleGroup(QuantAttr quant) {
  switch (quant.getGranularity()) {
  case Granularity::Tensor:
    return {ScaleGroup::kAll, ScaleGroup::kAll};
  case Granularity::Channel:
  case Granularity::Token:
    return {1, ScaleGroup::kAll};
  case Granularity::Group:
  case Granularity::Block:
    return {quant.getBlock()[0], quant.getBlock()[1]};
  }
  llvm_unreachable("every granularity is listed");
}

static int64_t getNumGroups(int64_t size, int64_t group) {
  return group == ScaleGroup::kAll ? 1 : llvm::divideCeilSigned(size, group);
}

int64_t getNumScaleColumns(QuantAttr quant, int64_t width) {
  return getNumGroups(width, getScaleGroup(quant).columns);
}

int64_t getNumScaleRows(QuantAttr quant, int64_t rows,
                        WeightLayoutAttr layout) {
  int64_t group = getScaleGroup(quant).rows;
  return hasHalves(layout) ? 2 * getNumGroups(rows / 2, group)
                           : getNumGroups(rows, group);
}

int64_t getScaleRow(QuantAttr quant, int64_t row, int64_t rows,
                    WeightLayoutAttr layout) {
  int64_t group = getScaleGroup(quant).rows;
  auto inside = [&](int64_t at) {
    return group == ScaleGroup::kAll ? 0 : at / group;
  };
  if (!hasHalves(layout))
    return inside(row);
  int64_t half = rows / 2;
  return row / half * getNumGroups(half, group) + inside(row % half);
}

int64_t getScaleColumn(QuantAttr quant, int64_t element) {
  int64_t group = getScaleGroup(quant).columns;
  return group == ScaleGroup::kAll ? 0 : element / group;
}

int64_t getCommonColumns(QuantAttr a, QuantAttr b) {
  static_assert(ScaleGroup::kAll == 0, "which divides by nothing");
  int64_t common = ScaleGroup::kAll;
  for (QuantAttr quant : {a, b})
    if (quant)
      common = std::gcd(common, getScaleGroup(quant).columns);
  return common;
}

float getLeastMagnitude(QuantAttr quant) {
  return quant.getGranularity() == Granularity::Token ? 1.0f / 512 : 1e-10f;
}

bool isBlockFp8(QuantAttr input, QuantAttr weight) {
  constexpr int64_t size = 128;
  auto is = [&](QuantAttr quant, int64_t rows) {
    return quant && isa<Float8E4M3FNType>(quant.getStorage()) &&
           quant.getScale().isF32() && !quant.getZeroPoint() &&
           getScaleGroup(quant) == ScaleGroup{rows, size};
  };
  return is(input, 1) && is(weight, size);
}

} // namespace moec::moe
