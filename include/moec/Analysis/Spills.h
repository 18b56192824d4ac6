//===- Spills.h - which configs run short of registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SPILLS_H
#define MOEC_ANALYSIS_SPILLS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// A schedule that knows of legal configs with which some kernels spill
/// registers (PtxasLimits.h): none of them is chosen, but who forces one may
/// have it.
class KnowsSpills {
public:
  virtual ~KnowsSpills() = default;
  /// Which field is beyond what is tried, and the nearest value that is not;
  /// empty if registers suffice. `config` is legal for `op`.
  virtual std::string whySpills(mlir::Operation *op,
                                tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_SPILLS_H
