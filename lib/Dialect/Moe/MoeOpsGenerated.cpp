//===- MoeOpsGenerated.cpp - the generated half of the moe ops --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Alone in its file: it takes longest to compile and changes least.

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/ScalarRegion.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace moec::moe;

#define GET_OP_CLASSES
#include "dialects/Moe/MoeOps.cpp.inc"
