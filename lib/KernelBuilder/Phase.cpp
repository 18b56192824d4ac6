//===- Phase.cpp - the phase of a kernel and its config ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Phase.h"

using namespace mlir;
using namespace moec;

FailureOr<Operation *> moec::getOnlyPhase(tile::KernelOp kernel) {
  Operation *phase = nullptr;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    if (op.hasTrait<OpTrait::ConstantLike>())
      continue;
    if (phase) {
      op.emitOpError(
          "is the second phase of its kernel; run tile-split-phases first");
      return failure();
    }
    phase = &op;
  }
  if (!phase) {
    kernel.emitOpError("has no phase");
    return failure();
  }
  return phase;
}

LogicalResult moec::requireConfig(Operation *op, tile::ConfigAttr config,
                                  StringRef schedule) {
  if (!config)
    return op->emitOpError("has no config; run tile-assign-config first");
  if (config.getSchedule() != schedule)
    return op->emitOpError("has the schedule '")
           << config.getSchedule() << "', and on "
           << (schedule.starts_with("cpu.") ? "the CPU" : "this target")
           << " it needs '" << schedule << "'";
  return success();
}

LogicalResult moec::requirePositive(Operation *op, StringRef field,
                                    int64_t value) {
  if (value > 0)
    return success();
  return op->emitOpError("needs a config with ")
         << field << " > 0, got " << value;
}
