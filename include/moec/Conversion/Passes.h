//===- Passes.h - passes from one level to the next -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_CONVERSION_PASSES_H
#define MOEC_CONVERSION_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace moec {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

#endif // MOEC_CONVERSION_PASSES_H
