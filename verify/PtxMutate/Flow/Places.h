//===- Places.h - offset of an address in its variable ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_PLACES_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_PLACES_H

#include "Ranges.h"

namespace moec::ptx::mutate {

/// Values of registers that are computed only from the thread's number,
/// constants and symbols, and are written once: they never change, and every
/// thread computes them by the same instructions. A symbol counts as 0.
class Places {
public:
  Places(const Flow &flow, unsigned thread) : flow(flow) {
    values["%tid.x"] = Range::of(thread, thread);
  }

  /// The value; none if it depends on more. An address is the byte offset in
  /// the one variable that it points into.
  std::optional<int64_t> find(const RawOperand &operand);

private:
  bool isKnown(const RawOperand &operand, unsigned depth);

  const Flow &flow;
  Values values;
};

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_PLACES_H
