//===- PackedRows.cpp - phases of an all-to-all -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/PackedRows.h"
#include "moec/Dialect/Tile/Exchange.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace moec;
using namespace moec::tile;

static MemRefType getType(Value value) {
  return cast<MemRefType>(value.getType());
}

/// Verifies the types of the results of `tile.route_rows`.
static LogicalResult verifyRoutes(Operation *op, Value positions,
                                  Value counts) {
  MemRefType first = getType(positions), second = getType(counts);
  if (first.getRank() != 1 || !first.isDynamicDim(0))
    return op->emitOpError("has 'positions' of type ")
           << first << "; memref<?xi32> is accepted";
  if (second.getRank() != 1 || second.isDynamicDim(0) ||
      second.getDimSize(0) < 2)
    return op->emitOpError("has 'counts' of type ")
           << second << "; give one i32 per rank, 2 or more";
  return success();
}

static LogicalResult verifyHeader(Operation *op, Value header) {
  MemRefType type = getType(header);
  if (type.getRank() == 1 && type.hasStaticShape() &&
      type.getDimSize(0) == moert::PackedRows::kNumWords)
    return success();
  return op->emitOpError("has a header of type ")
         << type << "; give " << moert::PackedRows::kNumWords << " words";
}

/// Verifies `rows`, one per token, with the row type of `other`.
static LogicalResult verifyRows(Operation *op, StringRef name, Value rows,
                                StringRef otherName, Value other) {
  MemRefType type = getType(rows);
  if (type.getRank() < 1 || !type.isDynamicDim(0) ||
      !type.getElementType().isIntOrFloat() ||
      type.getElementTypeBitWidth() % 8 != 0)
    return op->emitOpError("has '") << name << "' of type " << type
                                    << "; give a row of whole bytes per token";
  if (type != getType(other))
    return op->emitOpError("has '")
           << otherName << "' of type " << getType(other) << " for '" << name
           << "' of type " << type << "; give both the same type";
  return success();
}

/// Verifies that written memrefs are not other operands as well.
static LogicalResult verifyApart(Operation *op) {
  llvm::SmallPtrSet<Value, 16> seen;
  for (Value value : op->getOperands())
    if (!seen.insert(value).second)
      return op->emitOpError(
          "uses one memref twice; give each operand its own memref");
  return success();
}

LogicalResult RouteRowsOp::verify() {
  MemRefType ids = getType(getIds()), destinations = getType(getDestinations());
  if (ids.getRank() != 2 || !ids.isDynamicDim(0) || ids.isDynamicDim(1))
    return emitOpError("has 'ids' of type ")
           << ids << "; give tokens x top_k of i32";
  if (destinations.getRank() != 1 || destinations.isDynamicDim(0))
    return emitOpError("has 'destinations' of type ")
           << destinations << "; give one i32 per expert";
  if (Value valid = getNumValidTokens();
      valid && getType(valid).getShape() != ArrayRef<int64_t>{1})
    return emitOpError("has 'num_valid_tokens' of type ")
           << getType(valid) << "; memref<1xi32> is accepted";
  if (failed(verifyRoutes(*this, getPositions(), getCounts())))
    return failure();
  return verifyApart(*this);
}

LogicalResult PackRowsOp::verify() {
  if (getIns().empty() || getIns().size() != getOuts().size() ||
      getIns().size() != getPacked().size())
    return emitOpError("has ")
           << getIns().size() << " ins, " << getOuts().size() << " outs and "
           << getPacked().size()
           << " packed; give one or more ins and as many outs and packed";
  for (auto [in, out, packed] : llvm::zip(getIns(), getOuts(), getPacked()))
    if (failed(verifyRows(*this, "ins", in, "outs", out)) ||
        failed(verifyRows(*this, "ins", in, "packed", packed)))
      return failure();
  if (failed(verifyRoutes(*this, getPositions(), getCounts())) ||
      failed(verifyHeader(*this, getHeader())))
    return failure();
  return verifyApart(*this);
}

LogicalResult SumPackedRowsOp::verify() {
  if (failed(verifyRows(*this, "input", getInput(), "packed", getPacked())) ||
      failed(verifyRows(*this, "input", getInput(), "outs", getResult())))
    return failure();
  Type element = getType(getInput()).getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16())
    return emitOpError("has elements of type ")
           << element << ", which cannot be summed; f32, bf16 and f16 can";
  if (failed(verifyRoutes(*this, getPositions(), getCounts())) ||
      failed(verifyHeader(*this, getHeader())))
    return failure();
  return verifyApart(*this);
}
