//===- Explain.h - what was chosen for a layer, for people ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_EXPLAIN_H
#define MOEC_TOOLS_EXPLAIN_H

#include "mlir/IR/BuiltinOps.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Import/LayerSpec.h"

namespace moec {

/// Prints, for a module at level tile: the layer in a line, its launches with
/// schedule, config and CTAs, the workspace with who shares which slot, and the
/// operations and bytes that each step needs at a few token counts; where the
/// target's schedules have a model of their time, also what each launch is
/// expected to take, and which configs were not taken, and why.
mlir::LogicalResult explainLayer(mlir::ModuleOp module,
                                 const std::optional<LayerSpec> &spec,
                                 const Target &target, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_TOOLS_EXPLAIN_H
