//===- ScalarRegion.cpp - regions on single f32 values ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/ScalarRegion.h"
#include "moec/Dialect/Moe/Moe.h"

using namespace mlir;

namespace moec::moe {

LogicalResult verifyScalarArguments(Operation *op, Region &region,
                                    StringRef name,
                                    ArrayRef<std::string> arguments) {
  if (!region.hasOneBlock())
    return op->emitOpError("region '")
           << name << "' must be one block without branches";
  unsigned count = region.getNumArguments();
  if (count != arguments.size())
    return op->emitOpError("region '")
           << name << "' must take (" << llvm::join(arguments, ", ")
           << "), each f32, but takes " << count << " argument"
           << (count == 1 ? "" : "s");
  for (auto [argument, meaning] : llvm::zip(region.getArguments(), arguments))
    if (!argument.getType().isF32())
      return op->emitOpError("region '")
             << name << "' must take '" << meaning << "' as f32, not as "
             << argument.getType()
             << "; operands are converted to f32 before the region";
  return success();
}

/// Types with registers on every level.
static bool isScalarType(Type type) {
  return type.isF32() || type.isBF16() || type.isF16() || type.isInteger(1);
}

/// Ops that have a result for all conditions. A division of integers has none
/// by zero, where it ends the process, and a conversion to integers has none
/// out of range.
static bool isConditionOp(Operation &op) {
  return isa<arith::ConstantOp, arith::CmpFOp, arith::SelectOp, arith::AndIOp,
             arith::OrIOp, arith::XOrIOp, arith::UIToFPOp, math::IsFiniteOp,
             math::IsInfOp, math::IsNaNOp>(op);
}

static LogicalResult verifyScalarOp(Operation &op, StringRef region) {
  Dialect *dialect = op.getDialect();
  bool isScalarDialect =
      isa_and_nonnull<arith::ArithDialect, math::MathDialect>(dialect);
  if (!isScalarDialect && !isa<ParamOp>(op))
    return op.emitOpError("is not allowed in the scalar region '")
           << region
           << "'; use ops of arith and math on scalars, and attributes of the "
              "op for anything that involves other elements";
  SmallVector<Type> types(op.getOperandTypes());
  llvm::append_range(types, op.getResultTypes());
  for (Type type : types)
    if (isa<ShapedType>(type))
      return op.emitOpError("works on ")
             << type << " in the scalar region '" << region
             << "'; use scalars, which the lowering vectorizes";
    else if (!isScalarType(type))
      return op.emitOpError("works on ")
             << type << " in the scalar region '" << region
             << "'; use f32, bf16 and f16, and i1 for conditions";
  if (llvm::any_of(types, [](Type type) { return type.isInteger(1); }) &&
      !isConditionOp(op))
    return op.emitOpError("works on conditions in the scalar region '")
           << region
           << "'; use arith.andi, ori, xori, select and uitofp for these";
  return success();
}

LogicalResult verifyScalarBody(Operation *op, Region &region, StringRef name) {
  if (region.empty())
    return success();
  Block &body = region.front();
  std::string yield = (op->getName().getDialectNamespace() + ".yield").str();
  if (body.empty() || body.back().getName().getStringRef() != yield)
    return op->emitOpError("region '")
           << name << "' must end in '" << yield << "'";
  for (Operation &inner : body.without_terminator())
    if (failed(verifyScalarOp(inner, name)))
      return failure();
  return success();
}

ParseResult parseScalarRegion(OpAsmParser &parser, Region &region) {
  return parser.parseRegion(region, /*arguments=*/{},
                            /*enableNameShadowing=*/true);
}

void printScalarRegion(OpAsmPrinter &printer, Operation *, Region &region) {
  printer.printRegion(region);
}

} // namespace moec::moe
