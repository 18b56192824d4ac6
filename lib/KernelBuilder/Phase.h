//===- Phase.h - the phase of a kernel and its config -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_PHASE_H
#define MOEC_LIB_KERNELBUILDER_PHASE_H

#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// The only phase of a kernel; constants beside it are allowed. Fails with a
/// diagnostic on none or several.
mlir::FailureOr<mlir::Operation *> getOnlyPhase(tile::KernelOp kernel);

/// Fails with a diagnostic unless the op has a config of that schedule.
mlir::LogicalResult requireConfig(mlir::Operation *op, tile::ConfigAttr config,
                                  llvm::StringRef schedule);

/// The op's config as the schedule's attribute `Config`; fails with a
/// diagnostic on another one.
template <typename Config>
mlir::FailureOr<Config> requireConfig(mlir::Operation *op,
                                      tile::ConfigAttr config) {
  llvm::StringRef schedule = Config::getEmpty(op->getContext()).getSchedule();
  if (mlir::failed(requireConfig(op, config, schedule)))
    return mlir::failure();
  return mlir::cast<Config>(config);
}

/// Fails with a diagnostic unless the config's field is above 0.
mlir::LogicalResult requirePositive(mlir::Operation *op, llvm::StringRef field,
                                    int64_t value);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_PHASE_H
