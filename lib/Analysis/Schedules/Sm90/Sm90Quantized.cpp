//===- Sm90Quantized.cpp - products that quantize their results -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA then has 128 columns, which may be more than suits few rows. What that
// costs is compared with what a kernel for the quantization takes.

#include "Sm90Quantized.h"

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Device.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

/// What the kernel behind takes, in microseconds.
static double predictQuantization(tile::QuantizeOp op, tile::LoadAttr load,
                                  int64_t groups, int64_t tokens,
                                  Routing routing, const DeviceRates &device) {
  auto input = cast<MemRefType>(op.getInput().getType());
  auto scale = cast<MemRefType>(op.getScale().getType());
  double rows = RowCounts(load, groups, tokens, routing).rows * double(groups);
  double elementBytes = double(input.getElementTypeBitWidth()) / 8;
  constexpr double codeBytes = 1, scaleBytes = 4;
  double rowBytes = double(input.getDimSize(1)) * (elementBytes + codeBytes) +
                    double(scale.getDimSize(1)) * scaleBytes;
  return device.getLaunchTime() + 1e6 * rows * rowBytes / device.copyBytes;
}

tile::ConfigAttr sm90::quantizeContract(tile::ContractOp product,
                                        tile::QuantizeOp quantization,
                                        tile::ContractOp quantized,
                                        tile::LoadAttr load, bool isFixed,
                                        const Target &target) {
  tile::ConfigAttr own = product.getConfigAttr();
  if (isFixed)
    return findSchedule(target, own.getSchedule())
                   ->whyIllegal(quantized, own, target)
                   .empty()
               ? own
               : tile::ConfigAttr();
  const DeviceRates *device = getDeviceRates(target);
  tile::ConfigAttr config =
      device ? chooseForLoad(quantized, target, load) : tile::ConfigAttr();
  if (!config)
    return {};
  int64_t groups =
      cast<MemRefType>(product.getWeight().getType()).getDimSize(0);
  auto getQuantizationTime = [&](int64_t tokens, Routing routing) {
    return predictQuantization(quantization, load, groups, tokens, routing,
                               *device);
  };
  double relative = getRelativeTime(load, target, {quantized, config},
                                    {product, own, getQuantizationTime});
  return relative < 1 ? config : tile::ConfigAttr();
}
