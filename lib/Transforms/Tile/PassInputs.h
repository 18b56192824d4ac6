//===- PassInputs.h - what passes over kernels begin with -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_PASSINPUTS_H
#define MOEC_LIB_TRANSFORMS_TILE_PASSINPUTS_H

#include "mlir/Pass/PassManager.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Schedules.h"

namespace moec {

/// The target of a pass, with its part, and the forced configs.
struct PassInputs {
  Target target;
  std::vector<ForcedConfig> forced;

  /// Reads the options of a pass over `op`; reports errors in them.
  static std::optional<PassInputs>
  read(mlir::Operation *op, llvm::StringRef pass, llvm::StringRef target,
       llvm::StringRef part, llvm::ArrayRef<std::string> configs,
       int64_t lanes = 0, llvm::StringRef products = {});
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_PASSINPUTS_H
