//===- ElementScales.cpp - scales and zeros of elements ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Scales and zero points that apply to weight elements before the
// multiplication. A lane of the tensor cores decodes one weight row of every 8,
// and of each `kDecodedColumns` elements of it adjacent ones in one scale
// group.

#include "KernelBuilder/GemmOperands.h"
#include "Scales.h"

using namespace mlir;
using namespace moec;

Sm80Scales::ElementRows
Sm80Scales::findElementRows(Value memref, I32 first,
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
      Index column = firstColumn + emitter.toIndex(first);
      Value address = addressOfColumn(memref, projection, column);
      for (int64_t distance : distances)
        rows.push_back({address, distance * columnBytes});
      continue;
    }
    for (int64_t distance : distances)
      rows.push_back(
          {addressOfColumn(memref, projection, getColumn(first + distance)),
           0});
  }
  return found;
}

void Sm80Scales::findElementRows(I32 first, ArrayRef<int64_t> distances) {
  if (shape.scales.weight == ScaleTime::OnElements)
    elementScales =
        findElementRows(emitter.operand(op.getWeightScale()), first, distances);
  if (op.getWeightZeroPoint())
    zeroPoints = findElementRows(emitter.operand(op.getWeightZeroPoint()),
                                 first, distances);
}

I32 Sm80Scales::getElementNumber(I32 element) {
  moe::QuantAttr quant = op.getWeightQuantAttr();
  int64_t size = moe::getScaleGroup(quant).columns;
  if (size == moe::ScaleGroup::kAll)
    return emitter.i32(0);
  // The lane's eight adjacent elements. With 8-bit elements, all lanes'
  // neighbours belong to one instruction.
  constexpr int64_t lanesOfRow = 4, neighbours = kDecodedColumns / lanesOfRow;
  constexpr int64_t byteBits = 8;
  if (shape.usesTensorCores() && size < kDecodedColumns &&
      shape.weight.bits < byteBits)
    element = element + emitter.lane() % lanesOfRow * neighbours;
  return limit(quant, element / size);
}

Value Sm80Scales::makeFactor(F32 value) {
  if (!shape.usesTensorCores())
    return value;
  Type element = getType(b.getContext(), shape.compute);
  return PairDecoder(b, Elements::Plain, element, floats).makePair(value);
}

SmallVector<ElementFactors> Sm80Scales::loadForElements(int64_t projection,
                                                        I32 element) {
  SmallVector<ElementFactors> factors;
  if (!shape.hasElementFactors)
    return factors;
  I32 number = getElementNumber(element);
  moe::QuantAttr quant = op.getWeightQuantAttr();
  if (!elementScales.empty())
    for (auto [address, bytes] : elementScales[projection])
      factors.push_back(
          {makeFactor(load(quant.getScale(), address, number, bytes)),
           Value()});
  if (zeroPoints.empty())
    return factors;
  I64 offset = number.toI64();
  for (auto [address, bytes] : zeroPoints[projection]) {
    Value at = emitter.advance(emitter.advance(address, offset), bytes);
    I32 difference =
        int64_t(getOffset(getElements(quant))) - emitter.loadBytes(at, 1);
    factors.push_back({Value(), makeFactor(difference.toF32())});
  }
  return factors;
}
