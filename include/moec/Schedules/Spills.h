//===- Spills.h - which configs run short of registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SPILLS_H
#define MOEC_SCHEDULES_SPILLS_H

#include "Schedules.h"

namespace moec {

/// A schedule that knows legal configs with which some kernels spill registers
/// (PtxasLimits.h). None of them is chosen, but a user may force one.
class KnowsSpills {
public:
  virtual ~KnowsSpills() = default;
  /// Names the field beyond the limit and the nearest value within it; empty if
  /// registers suffice. Requires that `config` is legal for `op`.
  virtual std::string whySpills(mlir::Operation *op,
                                tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_SPILLS_H
