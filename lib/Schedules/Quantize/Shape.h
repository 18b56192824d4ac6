//===- Shape.h - shape of the schedule gpu.quantize -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_QUANTIZE_SHAPE_H
#define MOEC_LIB_SCHEDULES_QUANTIZE_SHAPE_H

#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/GpuInstructions.h"

namespace moec::anygpu {

/// Quantization. A CTA of `kThreads` takes `ctaElements` elements of the list
/// of all rows' groups, in vectors of `lanes`. Lanes of a warp share a group; a
/// thread has either one vector of each of several groups, or several vectors
/// of one.
///
/// With one scale per row, a CTA takes whole rows, `ctaElements` elements of
/// one at a time, one vector per thread.
struct Quantize {
  Quantize(tile::QuantizeOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  /// Maximum vectors that a lane holds, in f32.
  static constexpr int64_t kMostHeld = 8;

  int64_t columns, lanes, ctaElements;
  /// Neighbours that share a scale, or moe::ScaleGroup::kAll.
  int64_t size;

  bool areRows() const { return size == moe::ScaleGroup::kAll; }
  /// Whether a warp holds a whole row in registers.
  bool areHeld() const { return areRows() && getHeldVectors() <= kMostHeld; }
  /// Vectors of such a row per lane, and rows that a warp holds at once.
  int64_t getHeldVectors() const {
    return (columns + kWarp * lanes - 1) / (kWarp * lanes);
  }
  int64_t getHeldRows() const { return kMostHeld / getHeldVectors(); }
  /// Groups of a row; the last one may be smaller.
  int64_t getRowGroups() const { return (columns + size - 1) / size; }
  /// Threads that share a group, and its vectors per thread.
  int64_t getLanes() const {
    return size / lanes < kWarp ? size / lanes : kWarp;
  }
  int64_t getVectors() const { return size / (lanes * getLanes()); }
  int64_t getCtaGroups() const { return ctaElements / size; }
  int64_t getGroupsAtOnce() const { return kThreads / getLanes(); }
};

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_QUANTIZE_SHAPE_H
