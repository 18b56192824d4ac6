//===- Exchange.cpp - phases that several ranks run -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Tile/Exchange.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Dialect/RowQuantization.h"
#include "moec/Dialect/SlotSums.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using namespace moec::tile;

#define GET_OP_CLASSES
#include "dialects/Tile/TileExchangeOps.cpp.inc"

/// Static rows of one rank; nothing if rows are tokens.
static std::optional<int64_t> getRows(MemRefType type, int64_t ranks) {
  if (type.isDynamicDim(0))
    return std::nullopt;
  return type.getDimSize(0) / ranks;
}

/// Verifies pair `i` of a collective of `ranks` ranks.
static LogicalResult verifyPair(ExchangeOp op, size_t i, int64_t ranks) {
  auto from = cast<MemRefType>(op.getIns()[i].getType());
  auto to = cast<MemRefType>(op.getOuts()[i].getType());
  bool gathers = op.getKind() == plan::CollectiveKind::AllGather;
  bool scatters = op.getKind() == plan::CollectiveKind::ReduceScatter;
  int64_t toAll = gathers ? ranks : 1, toOne = scatters ? ranks : 1;
  if (from.getRank() < 1 || from.getRank() != to.getRank() ||
      from.getElementType() != to.getElementType() ||
      from.getShape().drop_front() != to.getShape().drop_front() ||
      (!from.isDynamicDim(0) && from.getDimSize(0) % toOne != 0) ||
      (!to.isDynamicDim(0) && to.getDimSize(0) % toAll != 0) ||
      getRows(from, toOne) != getRows(to, toAll))
    return op.emitOpError("ins[") << i << "] is " << from << " and outs[" << i
                                  << "] is " << to << "; with " << ranks
                                  << " heaps they may differ only in the first "
                                     "dimension, as the kind requires";
  Type element = from.getElementType();
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
    return op.emitOpError("ins[") << i << "] has elements of type " << element
                                  << "; only whole bytes are moved";
  if (!gathers && !element.isF32() && !element.isBF16() && !element.isF16())
    return op.emitOpError("ins[")
           << i << "] has elements of type " << element
           << ", which cannot be summed; f32, bf16 and f16 can";
  return success();
}

MemRefType ExchangeOp::getMovedType(size_t index) {
  auto type = cast<MemRefType>(getIns()[index].getType());
  std::optional<uint64_t> columns = getNumColumns();
  return columns ? MemRefType::get({type.getDimSize(0), int64_t(*columns)},
                                   type.getElementType())
                 : type;
}

/// Verifies the quantization that the kernel does itself.
static LogicalResult verifyQuant(ExchangeOp op) {
  moe::QuantAttr quant = op.getQuantAttr();
  if (bool(quant) != bool(op.getUnquantized()))
    return op.emitOpError(
        "has one of 'unquantized' and 'by'; give both or neither");
  if (!quant)
    return success();
  ArrayRef<int64_t> quantized = *op.getQuantized();
  auto type = [&](int64_t pair) {
    return cast<MemRefType>(
        op.getIns()[size_t(quantized[size_t(pair)])].getType());
  };
  std::optional<int64_t> group = RowQuantization::getGroup(type(0), type(1));
  bool areRows = RowQuantization::areRows(type(0), type(1));
  bool isOfThese = quant.getGranularity() == moe::Granularity::Token
                       ? areRows
                       : quant.getGranularity() == moe::Granularity::Group &&
                             group && quant.getBlock()[1] == *group;
  if (quant.getDynamic() && quant.getScale().isF32() && isOfThese &&
      moe::getMemoryType(quant) == type(0).getElementType())
    return success();
  InFlightDiagnostic error = op.emitOpError("quantizes by ")
                             << quant << "; give a dynamic quantization to "
                             << type(0).getElementType() << " with f32";
  if (group)
    error << " for groups of [1, " << *group << "]";
  if (areRows)
    error << (group ? " or" : "") << " by token";
  return error;
}

LogicalResult ExchangeOp::verify() {
  auto ranks = static_cast<int64_t>(getHeaps().size());
  if (ranks < 2 || ranks > moert::PeerHeap::kMaxRanks)
    return emitOpError("has ") << ranks << " heaps; give one per rank, 2 to "
                               << moert::PeerHeap::kMaxRanks;
  if (getIns().empty() || getIns().size() != getOuts().size())
    return emitOpError("has ")
           << getIns().size() << " ins and " << getOuts().size()
           << " outs; give one or more ins and as many outs";
  for (Value heap : getHeaps()) {
    auto type = cast<MemRefType>(heap.getType());
    if (type.getRank() != 1 || !type.isDynamicDim(0))
      return emitOpError("has a heap of type ")
             << type << "; memref<?xi64> is accepted";
  }
  for (size_t i = 0; i < getIns().size(); ++i)
    if (failed(verifyPair(*this, i, ranks)))
      return failure();
  if (failed(verifyRowDestinations(
          *this,
          {getDestinations(), getIds(),
           getRouted().value_or(ArrayRef<int64_t>()), getExpertsPerRank()},
          getIns(), plan::CollectiveOp::getNumIds(getKind()))))
    return failure();
  if (failed(verifySlotSums(
          *this, {getRows(), getPosition(), getAddend(), getNumValidTokens()},
          getIns(), getKind() != plan::CollectiveKind::AllGather)))
    return failure();
  if (failed(verifyRowQuantization(
          *this,
          {getUnquantized(), getQuantized().value_or(ArrayRef<int64_t>())},
          getIns(), getRouted().value_or(ArrayRef<int64_t>()),
          getKind() == plan::CollectiveKind::AllGather)) ||
      failed(verifyQuant(*this)))
    return failure();
  if (getToResults() && getKind() != plan::CollectiveKind::AllGather)
    return emitOpError(
        "is 'to_results', which only an all_gather may be; remove it");
  if (getFirstColumn() && !getRows())
    return emitOpError("has 'first_column' without 'sums_of'; give 'sums_of' "
                       "too, or remove 'first_column'");
  // The ids may be gathered too.
  llvm::SmallPtrSet<Value, 16> seen;
  for (OperandRange values : {getIns(), getOuts(), getHeaps()})
    for (Value value : values)
      if (!seen.insert(value).second)
        return emitOpError(
            "uses one memref twice; give each operand its own memref");
  return success();
}
