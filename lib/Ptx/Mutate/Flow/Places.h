//===- Places.h - where in its variable an address is -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_FLOW_PLACES_H
#define MOEC_LIB_PTX_MUTATE_FLOW_PLACES_H

#include "Ranges.h"

namespace moec::ptx::mutate {

/// Values of registers that are made of the thread's number, numbers and
/// symbols alone, each written once: they never change, and the same
/// instructions make them in every thread. A symbol counts as 0.
class Places {
public:
  Places(const Flow &flow, unsigned thread) : flow(flow) {
    values["%tid.x"] = Range::of(thread, thread);
  }

  /// The value, none if it depends on more. An address is that of the one
  /// variable that is added up in it, and so many bytes.
  std::optional<int64_t> find(const RawOperand &operand);

private:
  bool isKnown(const RawOperand &operand, unsigned depth);

  const Flow &flow;
  Values values;
};

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_FLOW_PLACES_H
