//===- Floor.h - least time of a layer --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_CHECK_FLOOR_H
#define MOEC_VERIFY_GPUTEST_CHECK_FLOOR_H

#include "CheckLayer.h"

namespace moec::gputest {

/// Measured rates of an H200: dense bf16 gemms, and memory reads.
constexpr double kOperationsPerSecond = 799e12;
constexpr double kBytesPerSecond = 4.54e12;

/// The least work of a call in a single fused pass: every needed weight and the
/// hidden states are read once, the output is written once.
struct Floor {
  double operations = 0;
  double bytes = 0;
  double getSeconds() const {
    return std::max(operations / kOperationsPerSecond, bytes / kBytesPerSecond);
  }
};

Floor getFloor(const LayerSpec &spec, int64_t tokens, const Load &load);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_CHECK_FLOOR_H
