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

enum class ExplainMode { Summary, All };

/// Prints, for a module at level tile, the layer in two lines and then, as a
/// summary of at most 40 lines of 140 columns: for each range of tokens the
/// launches and, where the target's schedules have a model of their time, what
/// they are expected to take, as a share of the floor, and what bounds them;
/// the kernels of products with their configs; and the workspace.
///
/// All: each launch with schedule, config and CTAs, the workspace with who
/// shares which slot, and the operations and bytes that each step needs at a
/// few token counts; where there is a model, also what each launch is expected
/// to take, and which configs were not taken, and why.
mlir::LogicalResult explainLayer(mlir::ModuleOp module,
                                 const std::optional<LayerSpec> &spec,
                                 const Target &target, ExplainMode mode,
                                 llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_TOOLS_EXPLAIN_H
