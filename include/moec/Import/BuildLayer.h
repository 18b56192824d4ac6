//===- BuildLayer.h - builds moe IR from a layer spec -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_BUILDLAYER_H
#define MOEC_IMPORT_BUILDLAYER_H

#include "moec/Import/LayerSpec.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace moec {

/// On a layer's function: sentences about where the layer differs from the
/// configuration, an array of strings.
inline constexpr llvm::StringLiteral kRemarksAttr = "moe.remarks";

/// Builds a module with one `func.func` named `spec.name` that holds the layer
/// as one `moe.layer` (level moe of docs/design/architecture.md). Its arguments
/// are the inputs and weights of `getTensorSignature(spec)`, in that order and
/// with their canonical names. Loads the dialects func, arith, math and moe
/// into the context. Returns null only if the module does not verify, after
/// reporting it to the context.
mlir::OwningOpRef<mlir::ModuleOp> buildLayer(mlir::MLIRContext &context,
                                             const LayerSpec &spec);

} // namespace moec

#endif // MOEC_IMPORT_BUILDLAYER_H
