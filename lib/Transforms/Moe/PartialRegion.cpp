//===- PartialRegion.cpp - scalar regions of parts of sums ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartialRegion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace moec;

std::string Axes::str() const {
  std::string text;
  for (moe::Axis axis : {moe::Axis::Dp, moe::Axis::Tp})
    if (contains(axis))
      text += (text.empty() ? "" : " and ") + moe::stringifyAxis(axis).str();
  return text;
}

Axes PartialRegion::run() {
  Block &block = region.front();
  for (auto [argument, input] : llvm::zip(block.getArguments(), inputs))
    if (!input.partial.empty())
      parts[argument] = input;
  for (Operation &op : block.without_terminator()) {
    if (llvm::none_of(op.getOperands(),
                      [&](Value operand) { return parts.contains(operand); }))
      continue;
    RegionInput made = visit(op);
    if (culprit)
      return {};
    for (Value result : op.getResults())
      parts[result] = made;
  }
  return lookup(block.getTerminator()->getOperand(0)).partial;
}

RegionInput PartialRegion::refuse(Operation &op, bool adds, RegionInput part) {
  culprit = &op;
  isSum = adds;
  blamed = part;
  return part;
}

/// Both must be partials over equal axes, or one of them zeros.
RegionInput PartialRegion::add(Operation &op, Value x, Value y) {
  if (!parts.contains(x))
    std::swap(x, y);
  RegionInput part = lookup(x);
  if (part.partial == lookup(y).partial || matchPattern(y, m_AnyZeroFloat()))
    return part;
  return refuse(op, /*adds=*/true, part);
}

RegionInput PartialRegion::visit(Operation &op) {
  Value first = op.getOperand(0);
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return add(op, first, op.getOperand(1));
  if (isa<arith::NegFOp, arith::ExtFOp, arith::TruncFOp>(op))
    return lookup(first);
  if (auto select = dyn_cast<arith::SelectOp>(op))
    if (!parts.contains(select.getCondition()))
      return add(op, select.getTrueValue(), select.getFalseValue());
  if (isa<arith::MulFOp>(op)) {
    Value second = op.getOperand(1);
    if (!parts.contains(first))
      return lookup(second);
    if (!parts.contains(second))
      return lookup(first);
  }
  if (isa<arith::DivFOp>(op) && !parts.contains(op.getOperand(1)))
    return lookup(first);
  for (Value operand : op.getOperands())
    if (parts.contains(operand))
      return refuse(op, /*adds=*/false, lookup(operand));
  llvm_unreachable("visited for a part");
}
