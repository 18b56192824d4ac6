//===- BuildLayer.h - a layer spec to IR of the moe dialect -----*- C++ -*-===//
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

/// A module with one `func.func` called `spec.name` that holds the layer as one
/// `moe.layer` (docs/architecture.md, level moe). Its arguments are the inputs
/// and weights of `getTensorSignature(spec)` in their order, with their
/// canonical names. The context needs the dialects func, arith, math and moe;
/// they are loaded here. Null only when the module does not verify, which has
/// been reported to the context then.
mlir::OwningOpRef<mlir::ModuleOp> buildLayer(mlir::MLIRContext &context,
                                             const LayerSpec &spec);

} // namespace moec

#endif // MOEC_IMPORT_BUILDLAYER_H
