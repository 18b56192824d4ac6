//===- CopyCost.cpp - how long kernels take that copy rows ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyCost.h"

#include "moec/Schedules/Device.h"

using namespace mlir;
using namespace moec;

/// Rows of all groups according to offsets; without offsets one row per token.
static double getRows(Value offsets, tile::LoadAttr load, int64_t tokens,
                      Routing routing) {
  if (!offsets)
    return double(tokens);
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  return RowCounts(load, groups, tokens, routing).rows * double(groups);
}

double anygpu::predictQuantize(tile::QuantizeOp op, tile::LoadAttr load,
                               int64_t tokens, Routing routing,
                               const DeviceRates &device) {
  if (!load)
    return 0;
  auto input = cast<MemRefType>(op.getInput().getType());
  auto values = cast<MemRefType>(op.getQuantized().getType());
  constexpr double scaleBytes = 4;
  double elementBytes =
      double(input.getElementTypeBitWidth() + values.getElementTypeBitWidth()) /
      8;
  double rowBytes = double(input.getDimSize(1)) * elementBytes;
  if (Value scale = op.getScale())
    rowBytes +=
        double(cast<MemRefType>(scale.getType()).getDimSize(1)) * scaleBytes;
  return 1e6 * getRows(op.getOffsets(), load, tokens, routing) * rowBytes /
         device.copyBytes;
}

double anygpu::predictGatherRows(tile::GatherRowsOp op, tile::LoadAttr load,
                                 int64_t tokens, Routing routing,
                                 const DeviceRates &device) {
  if (!load)
    return 0;
  double rows = getRows(op.getOffsets(), load, tokens, routing);
  double rowBytes = 0;
  for (Value input : op.getInputs()) {
    auto type = cast<MemRefType>(input.getType());
    rowBytes +=
        double(type.getDimSize(1)) * double(type.getElementTypeBitWidth()) / 8;
  }
  // Column indices are read for each row, through L2.
  if (Value columns = op.getColumns())
    rowBytes += double(cast<MemRefType>(columns.getType()).getDimSize(1)) *
                double(sizeof(int32_t)) / 2;
  // Rows that do not fit in L2 are read again for each expert.
  double inputRows = rowBytes * double(tokens) > device.l2KeptBytes
                         ? rows
                         : std::min(rows, double(tokens));
  return 1e6 * rowBytes * (rows + inputRows) / device.copyBytes;
}
