//===- Quantize.cpp - rows as e4m3 with scales ------------------*- C++ -*-===//
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
static float getScale(llvm::ArrayRef<float> group) {
  float largest = 0;
  for (float value : group) {
    float magnitude = std::fabs(value);
    if (magnitude > largest || std::isnan(magnitude))
      largest = magnitude;
    if (std::isnan(largest))
      return largest;
  }
  return std::max(largest, 1e-10f) / 448.0f;
}

Status quantize(const QuantizeArguments &arguments) {
  int64_t rows = arguments.rows;
  if (arguments.offsets) {
    const TensorRef &offsets = *arguments.offsets;
    rows = offsets.as<int32_t>()[offsets.numElements() - 1];
    if (rows < 0 || rows > arguments.rows)
      return invalidArgument("the last of offsets is " + std::to_string(rows) +
                             ", but there are " +
                             std::to_string(arguments.rows) + " positions");
  }
  for (auto [name, tensor] : {std::pair("input", &arguments.input),
                              std::pair("quantized", &arguments.quantized),
                              std::pair("scale", &arguments.scale)})
    if (Status status = checkRows(name, *tensor, rows); !status)
      return status;
  int64_t width = arguments.input.rowSize();
  int64_t groups = arguments.scale.rowSize();
  std::vector<float> row(width), scales(groups);
  const int32_t *offset =
      arguments.offsets ? arguments.offsets->as<int32_t>() : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    // The last offset is behind all rows.
    while (offset && r >= offset[1])
      ++offset;
    if (offset && !arguments.groupRows.contains(offset[1] - offset[0]))
      continue;
    load(arguments.input, r * width, MutableArrayRef<float>(row));
    for (int64_t g = 0; g < groups; ++g) {
      int64_t size = moe::getScaleGroup(arguments.quant).columns;
      int64_t first = g * size;
      auto group = MutableArrayRef<float>(row).drop_front(first);
      if (size != moe::ScaleGroup::kAll)
        group = group.take_front(size);
      scales[g] = getScale(group);
      for (float &value : group)
        value /= scales[g];
    }
    store(arguments.quantized, r * width, row);
    store(arguments.scale, r * groups, scales);
  }
  return Status::ok();
}

} // namespace moec::interpreter
