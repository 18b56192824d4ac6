//===- MulticastWeights.h - what multicast-weights asks ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_MULTICASTWEIGHTS_H
#define MOEC_SCHEDULES_REWRITES_MULTICASTWEIGHTS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule whose CTAs can share weights in clusters.
class MulticastsWeights {
public:
  virtual ~MulticastsWeights() = default;
  /// The config with clusters; null if it has them already.
  virtual tile::ConfigAttr withMulticast(tile::ConfigAttr config) const = 0;
  /// Rows of a group that fill a tile of each CTA of a cluster.
  virtual int64_t getPairedRows(tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_MULTICASTWEIGHTS_H
