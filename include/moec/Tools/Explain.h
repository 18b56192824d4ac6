//===- Explain.h - explains the choices for a layer -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_EXPLAIN_H
#define MOEC_TOOLS_EXPLAIN_H

#include "mlir/IR/BuiltinOps.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Import/LayerSpec.h"

namespace moec {

enum class ExplainMode { Summary, All };

/// Explains a module at level tile to a reader. `Summary` is at most 40 lines
/// of 140 columns: two lines about the layer; the rewrites of launches that
/// `options`, with which the module was made, rule out; for each range of token
/// counts its launches and, if the target's schedules have a cost model, their
/// expected times, shares of the floor and bounds; the kernels of gemms with
/// their configs; and the workspace.
///
/// `All` lists each launch with schedule, config and CTAs, the buffers that
/// share each workspace slot, and the operations and bytes of each step at a
/// few token counts. With a cost model it adds the expected time of each
/// launch, and the configs that were not taken, with the reason.
mlir::LogicalResult explainLayer(mlir::ModuleOp module,
                                 const std::optional<LayerSpec> &spec,
                                 const CompileOptions &options,
                                 ExplainMode mode, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_TOOLS_EXPLAIN_H
