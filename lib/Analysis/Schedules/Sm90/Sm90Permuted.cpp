//===- Sm90Permuted.cpp - products whose rows are in order ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows in order come by tensor maps, which saves the threads that gather them;
// what that is worth is compared with what the copy takes. The wider the
// product, the less a row's copy costs.

#include "Sm90Permuted.h"

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Device.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

/// What the kernel that copies rows takes, in microseconds.
static double predictGather(tile::GatherRowsOp op, tile::LoadAttr load,
                            int64_t groups, int64_t tokens, Routing routing,
                            const DeviceRates &device) {
  double rows = RowCounts(load, groups, tokens, routing).rows * double(groups);
  double rowBytes = 0;
  for (Value input : op.getInputs()) {
    auto type = cast<MemRefType>(input.getType());
    rowBytes +=
        double(type.getDimSize(1)) * double(type.getElementTypeBitWidth()) / 8;
  }
  // What does not fit the second-level cache is read for each expert anew.
  double inputRows = rowBytes * double(tokens) > device.l2KeptBytes
                         ? rows
                         : std::min(rows, double(tokens));
  double bytes = rowBytes * (rows + inputRows);
  return device.getLaunchTime() + 1e6 * bytes / device.copyBytes;
}

/// The product's own config, with maps.
static tile::ConfigAttr withMaps(tile::ContractOp permuted,
                                 const Target &target) {
  tile::ConfigAttr config = permuted.getConfigAttr().withMapRows(true);
  return findSchedule(target, config.getSchedule())
                 ->whyIllegal(permuted, config, target)
                 .empty()
             ? config
             : tile::ConfigAttr();
}

tile::ConfigAttr sm90::permuteContract(tile::ContractOp product,
                                       tile::GatherRowsOp gather,
                                       tile::ContractOp permuted,
                                       tile::LoadAttr load, bool isFixed,
                                       bool always, const Target &target) {
  tile::ConfigAttr own = product.getConfigAttr();
  if (isFixed)
    return always ? withMaps(permuted, target) : tile::ConfigAttr();
  const DeviceRates *device = getDeviceRates(target);
  tile::ConfigAttr config =
      device ? chooseForLoad(permuted, target, load) : tile::ConfigAttr();
  if (!config || !config.getMapRows())
    return {};
  if (always)
    return config;
  int64_t groups =
      cast<MemRefType>(product.getWeight().getType()).getDimSize(0);
  auto getGatherTime = [&](int64_t tokens, Routing routing) {
    return predictGather(gather, load, groups, tokens, routing, *device);
  };
  double relative = getRelativeTime(
      load, target, {permuted, config, getGatherTime}, {product, own});
  return relative < 1 ? config : tile::ConfigAttr();
}
