//===- Sm80ElementScales.cpp - scales and zeros of elements -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Scales and zero points that apply to weight elements before the
// multiplication. A lane of the tensor cores decodes one weight row of every 8,
// and of each `kDecodedColumns` elements of it adjacent ones in one scale
// group.

#include "../../../Emission/ContractOperands.h"
#include "Sm80Scales.h"

using namespace mlir;
using namespace moec;

Sm80Scales::ElementRows
Sm80Scales::findElementRows(Value memref, Value first,
                            ArrayRef<int64_t> distances) {
  auto type = cast<MemRefType>(memref.getType());
  // Saves registers: addresses a constant apart share one base.
  bool isOneAddress = moe::getScaleGroup(op.getWeightQuantAttr()).rows == 1 &&
                      shape.columns % shape.n == 0 &&
                      type.getLayout().isIdentity();
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  bool areMixed = layout && layout.getOrder() == moe::GateUpOrder::Interleaved;
  int64_t columnBytes = type.getShape().back() * type.getElementTypeBitWidth() /
                        8 * (areMixed ? 2 : 1);
  ElementRows found;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection) {
    auto &rows = found.emplace_back();
    if (isOneAddress) {
      Value column = emitter.add(firstColumn, emitter.toIndex(first));
      Value address = addressOfColumn(memref, projection, column);
      for (int64_t distance : distances)
        rows.push_back({address, distance * columnBytes});
      continue;
    }
    for (int64_t distance : distances)
      rows.push_back(
          {addressOfColumn(memref, projection,
                           getColumn(emitter.scale(first, 1, distance))),
           0});
  }
  return found;
}

void Sm80Scales::findElementRows(Value first, ArrayRef<int64_t> distances) {
  if (shape.scales.weight == ScaleTime::OnElements)
    elementScales =
        findElementRows(emitter.operand(op.getWeightScale()), first, distances);
  if (op.getWeightZeroPoint())
    zeroPoints = findElementRows(emitter.operand(op.getWeightZeroPoint()),
                                 first, distances);
}

Value Sm80Scales::getElementNumber(Value element) {
  moe::QuantAttr quant = op.getWeightQuantAttr();
  int64_t size = moe::getScaleGroup(quant).columns;
  if (size == moe::ScaleGroup::kAll)
    return emitter.i32(0);
  Value own = element;
  // The lane's eight adjacent elements. With 8-bit elements, all lanes'
  // neighbours belong to one instruction.
  constexpr int64_t lanesOfRow = 4, neighbours = kDecodedColumns / lanesOfRow;
  constexpr int64_t byteBits = 8;
  if (shape.usesTensorCores() && size < kDecodedColumns &&
      shape.weight.bits < byteBits)
    own = arith::AddIOp::create(
        b, element,
        emitter.scale(emitter.remainder(emitter.lane(), lanesOfRow),
                      neighbours));
  return limit(quant, emitter.divide(own, size));
}

Value Sm80Scales::makeFactor(Value value) {
  if (!shape.usesTensorCores())
    return value;
  Type element = getType(b.getContext(), shape.compute);
  return PairDecoder(b, Elements::Plain, element, floats).makePair(value);
}

SmallVector<ElementFactors> Sm80Scales::loadForElements(int64_t projection,
                                                        Value element) {
  SmallVector<ElementFactors> factors;
  if (!shape.hasElementFactors)
    return factors;
  Value number = getElementNumber(element);
  moe::QuantAttr quant = op.getWeightQuantAttr();
  if (!elementScales.empty())
    for (auto [address, bytes] : elementScales[projection])
      factors.push_back(
          {makeFactor(load(quant.getScale(), address, number, bytes)),
           Value()});
  if (zeroPoints.empty())
    return factors;
  Value offset = arith::ExtUIOp::create(b, b.getI64Type(), number);
  Value least = emitter.i32(getOffset(getElements(quant)));
  for (auto [address, bytes] : zeroPoints[projection]) {
    Value zero =
        loadByte(emitter.advance(emitter.advance(address, offset), bytes));
    Value difference = arith::SIToFPOp::create(
        b, b.getF32Type(), arith::SubIOp::create(b, least, zero));
    factors.push_back({Value(), makeFactor(difference)});
  }
  return factors;
}
