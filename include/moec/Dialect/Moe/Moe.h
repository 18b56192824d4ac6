//===- Moe.h - the moe dialect ----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_MOE_H
#define MOEC_DIALECT_MOE_MOE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Moe/MoeDialect.h.inc"
#include "dialects/Moe/MoeEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Moe/MoeTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/Moe/MoeAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/Moe/MoeOps.h.inc"

#endif // MOEC_DIALECT_MOE_MOE_H
