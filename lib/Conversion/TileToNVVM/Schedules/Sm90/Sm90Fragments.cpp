//===- Sm90Fragments.cpp - where sums of sm90.contract lie ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Fragments.h"

#include "../../../Emission/ContractOperands.h"
#include "../../InlinePtx.h"
#include "moec/Dialect/Moe/Fragments.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using sm90::Contract;

Sm90Fragments::Sm90Fragments(Sm90Contract &contract, const ContractPart &part)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape), part(part),
      isOnM(shape.hasRowsOnM(part.tileHeight)),
      // Sums of e4m3 leave few registers, so that the thread index is read
      // again, not kept.
      thread(isOnM || shape.quantizes ? readThread(b) : emitter.thread()) {
  // A warp has 16 of the 64 on M: rows, or columns of one or two projections.
  int64_t perWarp =
      isOnM ? Contract::kStagedRows : shape.getWarpColumns(part.tileHeight);
  ownAcross = contract.addI32(emitter.scale(getConsumerWarp(), perWarp),
                              emitter.divide(getLane(), 4));
  if (!isOnM)
    ownAcross = contract.addI32(part.tile.firstColumn, ownAcross);
  ownAlong = emitter.scale(emitter.remainder(getLane(), 4), 2);
}

Value Sm90Fragments::getConsumerWarp() {
  return emitter.divide(emitter.remainder(thread, Contract::kWarpgroup), kWarp);
}

int64_t Sm90Fragments::getSum(int64_t projection, int64_t octet,
                              int64_t element) const {
  // Projections alternate every 8 weight rows. In memory, up comes before gate
  // in one of the orders.
  if (shape.weightsPerColumn == 2 &&
      contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate)
    projection = 1 - projection;
  return (octet * shape.weightsPerColumn + projection) * getSize() + element;
}

Value Sm90Fragments::getRow(int64_t octet, int64_t element) {
  return isOnM ? emitter.scale(ownAcross, 1, getAcross(element))
               : emitter.scale(ownAlong, 1, getAlong(octet, element));
}

Value Sm90Fragments::getColumn(int64_t block, int64_t octet, int64_t element) {
  int64_t first = block * shape.getBlockColumns(part.tileHeight);
  if (!isOnM)
    return emitter.scale(ownAcross, 1, first + getAcross(element));
  return contract.addI32(
      part.tile.firstColumn,
      emitter.scale(ownAlong, 1, first + getAlong(octet, element)));
}

Value Sm90Fragments::toPosition(Value row) {
  row = contract.minI32(row, emitter.scale(part.tile.rows, 1, -1));
  return emitter.toIndex(contract.addI32(part.tile.firstRow, row));
}

Value Sm90Fragments::toSafeColumn(Value column) {
  if (shape.columns % shape.n)
    column = contract.minI32(column, emitter.i32(shape.columns - 1));
  return emitter.toIndex(column);
}

Value Sm90Fragments::getSafePosition(int64_t octet, int64_t element) {
  return toPosition(getRow(octet, element));
}

Value Sm90Fragments::getSafeColumn(int64_t block, int64_t octet,
                                   int64_t element) {
  return toSafeColumn(getColumn(block, octet, element));
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

SmallVector<Value> Sm90Fragments::spread(int64_t count,
                                         function_ref<Value(Value)> load) {
  SmallVector<Value> loaded;
  for (int64_t first = 0; first < count; first += kWarp)
    loaded.push_back(load(emitter.scale(getLane(), 1, first)));
  return loaded;
}

Value Sm90Fragments::getSpread(ArrayRef<Value> loaded, int64_t along) {
  Value lane = emitter.scale(ownAlong, 1, along % kWarp);
  return emitter.getFromLane(loaded[along / kWarp], lane);
}

SmallVector<Value> Sm90Fragments::getIndices(Value row) {
  SmallVector<Value> indices{row};
  if (shape.isGrouped)
    indices.insert(indices.begin(), emitter.toIndex(part.tile.group));
  return indices;
}

SmallVector<Value> Sm90Fragments::loadRows(Load load) {
  auto loadAt = [&](Value row) { return load(toPosition(row)); };
  if (!isOnM)
    return spread(part.height, loadAt);
  SmallVector<Value> loaded;
  for (int64_t element = 0; element < getSize(); element += 2)
    loaded.push_back(loadAt(getRow(/*octet=*/0, element)));
  return loaded;
}

SmallVector<Value> Sm90Fragments::loadColumns(Load load) {
  if (isOnM)
    return spread(shape.getConsumerColumns(part.tileHeight), [&](Value column) {
      return load(toSafeColumn(contract.addI32(part.tile.firstColumn, column)));
    });
  SmallVector<Value> loaded;
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t element = 0; element < getSize(); element += 2)
      loaded.push_back(
          load(toSafeColumn(getColumn(block, /*octet=*/0, element))));
  return loaded;
}

SmallVector<Value> Sm90Fragments::loadOfRows(Value operand) {
  return loadRows([&](Value position) {
    return loadRowOperand(emitter, operand, position);
  });
}

SmallVector<Value> Sm90Fragments::loadOfColumns(Value operand,
                                                int64_t projection) {
  return loadColumns([&](Value column) {
    SmallVector<Value> indices =
        getIndices(getWeightRow(emitter, contract.op, projection, column));
    return emitter.loadF32(emitter.operand(operand), indices);
  });
}

SmallVector<Value> Sm90Fragments::loadRowScales() {
  Value source = emitter.operand(contract.op.getSource());
  return loadRows([&](Value position) {
    if (source)
      position = emitter.loadIndex(source, position);
    return loadInputScale(emitter, contract.op, position);
  });
}

/// Factor by which a row's stored number is smaller than the multiplier of its
/// sums. e4m3 values whose scales apply to elements have no scale of 1 that
/// compensates the exponent of the code.
static double getGreater(moe::QuantAttr quant) {
  moe::Fragments format(quant);
  bool hasScales = format.numbers != moe::Fragments::Numbers::E4M3 ||
                   format.scales == moe::Fragments::Scales::Steps ||
                   format.areScalesOfSums();
  return hasScales ? 1 : std::ldexp(1.0, int(format.getExponent(0)));
}

SmallVector<Value> Sm90Fragments::loadColumnScales(int64_t projection) {
  return loadColumns([&](Value column) {
    if (shape.fromRegisters) {
      Value number = emitter.loadF32(
          emitter.operand(contract.op.getWeightGlobalScale()),
          getIndices(getWeightRow(emitter, contract.op, projection, column)));
      double greater = getGreater(contract.op.getWeightQuantAttr());
      return greater == 1
                 ? number
                 : arith::MulFOp::create(b, number, emitter.f32(greater));
    }
    SmallVector<Value> indices =
        getIndices(getScaleRow(emitter, contract.op, projection, column));
    indices.push_back(emitter.index(0));
    return emitter.loadScale(emitter.operand(contract.op.getWeightScale()),
                             indices);
  });
}

Value Sm90Fragments::getOfRow(ArrayRef<Value> loaded, int64_t octet,
                              int64_t element) {
  return isOnM ? loaded[element / 2]
               : getSpread(loaded, getAlong(octet, element));
}

Value Sm90Fragments::getOfColumn(ArrayRef<Value> loaded, int64_t block,
                                 int64_t octet, int64_t element) {
  if (!isOnM)
    return loaded[block * getMatrices() + element / 2];
  return getSpread(loaded, block * shape.getBlockColumns(part.tileHeight) +
                               getAlong(octet, element));
}

ContractOperands moec::loadSm90Operands(Sm90Contract &contract,
                                        const ContractPart &part) {
  Sm90Fragments fragments(contract, part);
  ContractOperands operands;
  for (Value operand : contract.op.getRowOperands())
    operands.rows.push_back(fragments.loadOfRows(operand));
  for (Value operand : contract.op.getColumnOperands())
    for (int64_t projection = 0; projection < contract.shape.weightsPerColumn;
         ++projection)
      operands.columns.push_back(fragments.loadOfColumns(operand, projection));
  return operands;
}

void moec::loadSm90Scales(Sm90Contract &contract, const ContractPart &part,
                          ContractOperands &operands) {
  if (!contract.shape.scales.areInEpilogue())
    return;
  Sm90Fragments fragments(contract, part);
  if (contract.shape.scales.input == ScaleTime::InEpilogue)
    operands.rowScales = fragments.loadRowScales();
  if (contract.shape.scales.weight == ScaleTime::InEpilogue)
    for (int64_t projection = 0; projection < contract.shape.weightsPerColumn;
         ++projection)
      operands.columnScales.push_back(fragments.loadColumnScales(projection));
}
