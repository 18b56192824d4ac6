//===- PhaseWork.h - least work of a phase ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_PHASEWORK_H
#define MOEC_LIB_TOOLS_PHASEWORK_H

#include "mlir/IR/Operation.h"

namespace moec {

/// The least work of a step.
struct Work {
  double operations = 0;
  double bytes = 0;
};

/// The work of a phase of a `tile.kernel`, if experts are equally likely.
Work getWork(mlir::Operation *phase, int64_t topK, int64_t tokens);

} // namespace moec

#endif // MOEC_LIB_TOOLS_PHASEWORK_H
