//===- Quantize.cpp - rows as values with scales ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "moec/Dialect/Moe/QuantLayout.h"

#include <algorithm>
#include <cmath>

using namespace moert;
using llvm::MutableArrayRef;

namespace moec::interpreter {

/// The scale of one group, every step in f32.
static float getScale(llvm::ArrayRef<float> group, moe::QuantAttr quant) {
  float largest = 0;
  for (float value : group) {
    float magnitude = std::fabs(value);
    if (magnitude > largest || std::isnan(magnitude))
      largest = magnitude;
    if (std::isnan(largest))
      return largest;
  }
  float scale = std::max(largest, moe::getMinMagnitude(quant)) /
                moe::getLargestValue(quant);
  if (!quant.getPowerOfTwo() || std::isinf(scale))
    return scale;
  // frexp returns 0.5 to 1, exactly 0.5 for powers of two.
  int exponent;
  float digits = std::frexp(scale, &exponent);
  return std::ldexp(1.0F, digits == 0.5F ? exponent - 1 : exponent);
}

/// Divides an element by a static scale and saturates it to the range; NaN
/// stays NaN.
static float divideByGiven(float value, float scale, float largest) {
  float quotient = value / scale;
  return std::isnan(quotient) ? quotient
                              : std::clamp(quotient, -largest, largest);
}

/// Limits `rows` by the last offset.
static Status limitRows(const OptionalRef &offsets, int64_t &rows) {
  if (!offsets)
    return Status::ok();
  int64_t last = offsets->as<int32_t>()[offsets->numElements() - 1];
  if (last < 0 || last > rows)
    return invalidArgument("the last of offsets is " + std::to_string(last) +
                           ", but there are " + std::to_string(rows) +
                           " positions");
  rows = last;
  return Status::ok();
}

Status rmsNorm(RmsNormArguments arguments) {
  if (Status status = limitRows(arguments.offsets, arguments.rows); !status)
    return status;
  int64_t width = arguments.input.rowSize();
  auto epsilon = float(arguments.norm.getEpsilonValue());
  auto offset = float(arguments.norm.getOffsetValue());
  bool isFirst = arguments.norm.getWeightFirst();
  std::vector<float> row(width), weight(width);
  load(arguments.weight, 0, MutableArrayRef<float>(weight));
  for (int64_t r = 0; r < arguments.rows; ++r) {
    load(arguments.input, r * width, MutableArrayRef<float>(row));
    if (isFirst) {
      for (int64_t c = 0; c < width; ++c)
        row[c] *= offset + weight[c];
      // The result holds the row rounded to its type in the meantime.
      store(arguments.result, r * width, row);
      load(arguments.result, r * width, MutableArrayRef<float>(row));
    }
    float sum = 0;
    for (float value : row)
      sum += value * value;
    float scale = 1 / std::sqrt(sum / float(width) + epsilon);
    if (arguments.rowWeight)
      scale *= loadAt(*arguments.rowWeight, r);
    for (int64_t c = 0; c < width; ++c)
      row[c] *= isFirst ? scale : scale * (offset + weight[c]);
    store(arguments.result, r * width, row);
  }
  return Status::ok();
}

Status tensorScale(const TensorScaleArguments &arguments) {
  int64_t rows = validTokens(arguments.numValidTokens, arguments.rows);
  if (Status status = limitRows(arguments.offsets, rows); !status)
    return status;
  if (Status status = checkRows("input", arguments.input, rows); !status)
    return status;
  if (arguments.isPadding)
    if (Status status = checkRows("is_padding", *arguments.isPadding, rows);
        !status)
      return status;
  int64_t width = arguments.input.rowSize();
  std::vector<float> row(width);
  float largest = moe::getMinMagnitude(arguments.quant);
  for (int64_t r = 0; r < rows; ++r) {
    if (isPaddingRow(arguments.isPadding, r))
      continue;
    load(arguments.input, r * width, MutableArrayRef<float>(row));
    for (float value : row)
      if (std::isfinite(value))
        largest = std::max(largest, std::fabs(value));
  }
  store(arguments.scale, 0, {largest / moe::getLargestValue(arguments.quant)});
  return Status::ok();
}

Status quantize(const QuantizeArguments &arguments) {
  int64_t rows = arguments.rows;
  if (Status status = limitRows(arguments.offsets, rows); !status)
    return status;
  for (auto [name, tensor] : {std::pair("input", &arguments.input),
                              std::pair("quantized", &arguments.quantized)})
    if (Status status = checkRows(name, *tensor, rows); !status)
      return status;
  if (arguments.scale)
    if (Status status = checkRows("scale", *arguments.scale, rows); !status)
      return status;
  int64_t width = arguments.input.rowSize();
  int64_t groups = arguments.tensorScale
                       ? 0
                       : moe::getNumScaleColumns(arguments.quant, width);
  float given = arguments.tensorScale ? loadAt(*arguments.tensorScale, 0) : 0;
  std::vector<float> row(width), scales(groups);
  DType rounded =
      arguments.quant.getStorage().isInteger(8) ? DType::I8 : DType::F8E4M3;
  const int32_t *offset =
      arguments.offsets ? arguments.offsets->as<int32_t>() : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    // The last offset is at least `rows`.
    while (offset && r >= offset[1])
      ++offset;
    if (offset && !arguments.groupRows.contains(offset[1] - offset[0]))
      continue;
    load(arguments.input, r * width, MutableArrayRef<float>(row));
    if (arguments.tensorScale)
      for (float &value : row)
        value =
            divideByGiven(value, given, moe::getLargestValue(arguments.quant));
    for (int64_t g = 0; g < groups; ++g) {
      int64_t size = moe::getScaleGroup(arguments.quant).columns;
      int64_t first = g * size;
      auto group = MutableArrayRef<float>(row).drop_front(first);
      if (size != moe::ScaleGroup::kAll)
        group = group.take_front(size);
      scales[g] = getScale(group, arguments.quant);
      for (float &value : group)
        value /= scales[g];
    }
    // Quantized values are exact in bf16.
    if (moe::areKeptAsBF16(arguments.quant))
      for (float &value : row)
        value = roundTo(rounded, value);
    if (moe::areTimesScales(arguments.quant))
      for (int64_t c = 0; c < width; ++c)
        row[c] *= scales[moe::getScaleColumn(arguments.quant, c)];
    store(arguments.quantized, r * width, row);
    if (arguments.scale)
      store(*arguments.scale, r * groups, scales);
  }
  return Status::ok();
}

} // namespace moec::interpreter
