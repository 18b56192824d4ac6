//===- AccumulatorLayout.cpp - where sums of sm90.gemm lie ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccumulatorLayout.h"

#include "KernelBuilder/GemmOperands.h"
#include "KernelBuilder/InlinePtx.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"

#include <cmath>

using namespace mlir;
using namespace moec;

Sm90AccumulatorLayout::Sm90AccumulatorLayout(Sm90Gemm &gemm,
                                             const Sm90Part &part)
    : gemm(gemm), emitter(gemm.emitter), b(gemm.b), shape(gemm.shape),
      part(part), isOnM(!shape.tile().swapsAB(part.blockM)),
      // Sums of e4m3 leave few registers, so that the thread index is read
      // again, not kept.
      thread(isOnM || shape.problem().quantizes ? readThread(b)
                                                : emitter.thread()) {
  // A warp has 16 of the 64 on M: rows, or columns of one or two projections.
  int64_t perWarp =
      isOnM ? sm90::kStagedRows : shape.tile().getWarpColumns(part.blockM);
  ownAcross = getConsumerWarp() * perWarp + getLane() / 4;
  if (!isOnM)
    ownAcross = part.tile.firstColumn + ownAcross;
  ownAlong = getLane() % 4 * 2;
}

I32 Sm90AccumulatorLayout::getConsumerWarp() {
  return thread % kWarpgroup / kWarp;
}

int64_t Sm90AccumulatorLayout::getSum(int64_t projection, int64_t octet,
                                      int64_t element) const {
  // Projections alternate every 8 weight rows. In memory, up comes before gate
  // in one of the orders.
  if (shape.problem().weightsPerColumn == 2 &&
      gemm.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate)
    projection = 1 - projection;
  return (octet * shape.problem().weightsPerColumn + projection) * getSize() +
         element;
}

I32 Sm90AccumulatorLayout::getRow(int64_t octet, int64_t element) {
  return isOnM ? ownAcross + getAcross(element)
               : ownAlong + getAlong(octet, element);
}

I32 Sm90AccumulatorLayout::getColumn(int64_t block, int64_t octet,
                                     int64_t element) {
  int64_t first = block * shape.tile().getBlockColumns(part.blockM);
  if (!isOnM)
    return ownAcross + (first + getAcross(element));
  return part.tile.firstColumn +
         (ownAlong + (first + getAlong(octet, element)));
}

Index Sm90AccumulatorLayout::toPosition(I32 row) {
  I32 inside = min(row, part.tile.rows + -1);
  return emitter.toIndex(part.tile.firstRow + inside);
}

Index Sm90AccumulatorLayout::toSafeColumn(I32 column) {
  if (shape.problem().columns % shape.tile().blockN)
    column = min(column, shape.problem().columns - 1);
  return emitter.toIndex(column);
}

Index Sm90AccumulatorLayout::getSafePosition(int64_t octet, int64_t element) {
  return toPosition(getRow(octet, element));
}

Index Sm90AccumulatorLayout::getSafeColumn(int64_t block, int64_t octet,
                                           int64_t element) {
  return toSafeColumn(getColumn(block, octet, element));
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

SmallVector<F32> Sm90AccumulatorLayout::spread(int64_t count,
                                               function_ref<F32(I32)> load) {
  SmallVector<F32> loaded;
  for (int64_t first = 0; first < count; first += kWarp)
    loaded.push_back(load(getLane() + first));
  return loaded;
}

F32 Sm90AccumulatorLayout::getSpread(ArrayRef<F32> loaded, int64_t along) {
  return emitter.getFromLane(loaded[along / kWarp], ownAlong + along % kWarp);
}

SmallVector<Value> Sm90AccumulatorLayout::getIndices(Value row) {
  SmallVector<Value> indices{row};
  if (shape.problem().isGrouped)
    indices.insert(indices.begin(), emitter.toIndex(part.tile.group));
  return indices;
}

SmallVector<F32> Sm90AccumulatorLayout::loadRows(Load load) {
  auto loadAt = [&](I32 row) { return load(toPosition(row)); };
  if (!isOnM)
    return spread(part.maxRows, loadAt);
  SmallVector<F32> loaded;
  for (int64_t element = 0; element < getSize(); element += 2)
    loaded.push_back(loadAt(getRow(/*octet=*/0, element)));
  return loaded;
}

SmallVector<F32> Sm90AccumulatorLayout::loadColumns(Load load) {
  if (isOnM)
    return spread(shape.tile().getConsumerColumns(part.blockM),
                  [&](I32 column) {
                    return load(toSafeColumn(part.tile.firstColumn + column));
                  });
  SmallVector<F32> loaded;
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t element = 0; element < getSize(); element += 2)
      loaded.push_back(load(getSafeColumn(block, /*octet=*/0, element)));
  return loaded;
}

SmallVector<F32> Sm90AccumulatorLayout::loadOfRows(Value operand) {
  return loadRows([&](Index position) {
    return F32(b, loadRowOperand(emitter, operand, position));
  });
}

SmallVector<F32> Sm90AccumulatorLayout::loadOfColumns(Value operand,
                                                      int64_t projection) {
  return loadColumns([&](Index column) {
    SmallVector<Value> indices =
        getIndices(getWeightRow(emitter, gemm.op, projection, column));
    return emitter.loadF32(emitter.operand(operand), indices);
  });
}

SmallVector<F32> Sm90AccumulatorLayout::loadRowScales() {
  Value source = emitter.operand(gemm.op.getSource());
  return loadRows([&](Index position) {
    if (source)
      position = emitter.loadIndex(source, position);
    return F32(b, loadInputScale(emitter, gemm.op, position));
  });
}

/// Factor by which a row's stored number is smaller than the multiplier of its
/// sums. e4m3 values whose scales apply to elements have no scale of 1 that
/// compensates the exponent of the code.
static double getGreater(moe::QuantAttr quant) {
  moe::PrepackedFormat format(quant);
  bool hasScales = format.values.decoded != moe::DecodedType::E4M3 ||
                   format.scale.stored == moe::StoredScale::Steps ||
                   format.areScalesOfSums();
  return hasScales ? 1 : std::ldexp(1.0, int(format.values.getExponent(0)));
}

SmallVector<F32> Sm90AccumulatorLayout::loadColumnScales(int64_t projection) {
  return loadColumns([&](Index column) {
    if (shape.problem().isPrepacked()) {
      F32 number = emitter.loadF32(
          emitter.operand(gemm.op.getWeightGlobalScale()),
          getIndices(getWeightRow(emitter, gemm.op, projection, column)));
      double greater = getGreater(gemm.op.getWeightQuantAttr());
      return greater == 1 ? number : number * greater;
    }
    SmallVector<Value> indices =
        getIndices(getScaleRow(emitter, gemm.op, projection, column));
    indices.push_back(emitter.index(0));
    return F32(b, emitter.loadScale(emitter.operand(gemm.op.getWeightScale()),
                                    indices));
  });
}

F32 Sm90AccumulatorLayout::getOfRow(ArrayRef<F32> loaded, int64_t octet,
                                    int64_t element) {
  return isOnM ? loaded[element / 2]
               : getSpread(loaded, getAlong(octet, element));
}

F32 Sm90AccumulatorLayout::getOfColumn(ArrayRef<F32> loaded, int64_t block,
                                       int64_t octet, int64_t element) {
  if (!isOnM)
    return loaded[block * getMatrices() + element / 2];
  return getSpread(loaded, block * shape.tile().getBlockColumns(part.blockM) +
                               getAlong(octet, element));
}

Sm90EpilogueOperands moec::loadSm90Operands(Sm90Gemm &gemm,
                                            const Sm90Part &part) {
  Sm90AccumulatorLayout accumulators(gemm, part);
  Sm90EpilogueOperands operands;
  for (Value operand : gemm.op.getRowOperands())
    operands.rows.push_back(accumulators.loadOfRows(operand));
  for (Value operand : gemm.op.getColumnOperands())
    for (int64_t projection = 0;
         projection < gemm.shape.problem().weightsPerColumn; ++projection)
      operands.columns.push_back(
          accumulators.loadOfColumns(operand, projection));
  return operands;
}

void moec::loadSm90Scales(Sm90Gemm &gemm, const Sm90Part &part,
                          Sm90EpilogueOperands &operands) {
  if (!gemm.shape.problem().scales.areInEpilogue())
    return;
  Sm90AccumulatorLayout accumulators(gemm, part);
  if (gemm.shape.problem().scales.input == ScaleTime::InEpilogue)
    operands.rowScales = accumulators.loadRowScales();
  if (gemm.shape.problem().scales.weight == ScaleTime::InEpilogue)
    for (int64_t projection = 0;
         projection < gemm.shape.problem().weightsPerColumn; ++projection)
      operands.columnScales.push_back(
          accumulators.loadColumnScales(projection));
}
