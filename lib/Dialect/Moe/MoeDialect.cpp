//===- MoeDialect.cpp - registration of the moe dialect ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec::moe;

/// `[128, 128]`
static FailureOr<SmallVector<int64_t>> parseSizes(AsmParser &parser) {
  SmallVector<int64_t> sizes;
  auto parseSize = [&] { return parser.parseInteger(sizes.emplace_back()); };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseSize))
    return failure();
  return sizes;
}

static void printSizes(AsmPrinter &printer, ArrayRef<int64_t> sizes) {
  printer << '[';
  llvm::interleaveComma(sizes, printer);
  printer << ']';
}

#include "dialects/Moe/MoeDialect.cpp.inc"
#include "dialects/Moe/MoeEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Moe/MoeTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/Moe/MoeAttrs.cpp.inc"

void MoeDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Moe/MoeTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Moe/MoeAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Moe/MoeOps.cpp.inc"
      >();
}
