//===- ScaledBlocks.cpp - blocks of quantized operands as f32 ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScaledBlocks.h"

#include "KernelBuilder/GemmOperands.h"
#include "Shape.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

/// Bytes per prefetch.
static constexpr int64_t kCacheLine = 64;

ScaledBlocks::ScaledBlocks(KernelEmitter &emitter, tile::GemmOp op, Sizes sizes)
    : emitter(emitter), b(emitter.b), op(op), sizes(sizes),
      sizeK(moe::getRowWidth(
          op.getInputQuantAttr(),
          cast<MemRefType>(op.getInput().getType()).getShape().back())),
      block(cpu::getDecodedColumns(op)) {
  Type f32 = b.getF32Type();
  int64_t weightRows = sizes.weightsPerColumn * sizes.columns;
  if (sizes.decodes) {
    input = emitter.scratch({sizes.rows, block}, f32);
    weight = emitter.scratch({weightRows, block}, f32);
  }
  if (op.getInputScale())
    rowScales = emitter.scratch({sizes.rows}, f32);
  if (op.getWeightScale() && !hasMinima())
    columnScales = emitter.scratch({weightRows}, f32);
}

Index ScaledBlocks::getWeightRow(int64_t projection, Index column) {
  return column + projection * sizes.columns;
}

void ScaledBlocks::forBlocks(Index group, Index count, RowRange columns,
                             function_ref<Index(Index)> getRow,
                             function_ref<void()> body) {
  auto visit = [&](Index number, int64_t size) {
    loadInput(number, size, count, getRow);
    loadWeight(number, size, group, columns);
    body();
  };
  emitter.loop(emitter.index(0), emitter.index(sizeK / block), 1,
               [&](Index number) { visit(number, block); });
  if (int64_t left = sizeK % block)
    visit(emitter.index(sizeK / block), left);
}

Index ScaledBlocks::getScaleColumn(moe::QuantAttr quant, Index number) {
  int64_t columns = moe::getScaleGroup(quant).columns;
  if (columns == moe::ScaleGroup::kAll)
    return emitter.index(0);
  return number / (columns / block);
}

void ScaledBlocks::loadScales(Index group, Index count, RowRange columns,
                              function_ref<Index(Index)> getRow) {
  Index first = emitter.index(0);
  if (rowScales)
    emitter.loop(first, count, 1,
                 [&](Index row) { storeRowScale(getRow(row), first, row); });
  if (!columnScales)
    return;
  for (int64_t projection = 0; projection < sizes.weightsPerColumn;
       ++projection)
    emitter.loop(columns.begin, columns.end, 1, [&](Index column) {
      Indices at;
      if (group)
        at.push_back(group);
      at.push_back(getScaleRow(emitter, op, projection, column));
      at.push_back(first);
      F32 scale = loadWeightScale(emitter.operand(op.getWeightScale()), at,
                                  group, projection);
      emitter.storeF32(scale, columnScales,
                       getWeightRow(projection, column - columns.begin));
    });
}

void ScaledBlocks::storeRowScale(Index source, Index scaleColumn, Index row) {
  Value scales = emitter.operand(op.getInputScale());
  bool hasOneScale = cast<MemRefType>(scales.getType()).getRank() == 1;
  emitter.storeF32(hasOneScale ? emitter.loadF32(scales, emitter.index(0))
                               : emitter.loadF32(scales, {source, scaleColumn}),
                   rowScales, row);
}

void ScaledBlocks::loadInput(Index number, int64_t size, Index count,
                             function_ref<Index(Index)> getRow) {
  Value from = emitter.operand(op.getInput());
  Value scales = emitter.operand(op.getInputScale());
  Index scaleColumn =
      scales ? getScaleColumn(op.getInputQuantAttr(), number) : Index();
  Index first = number * block;
  emitter.loop(emitter.index(0), count, 1, [&](Index row) {
    Index source = getRow(row);
    if (scales)
      storeRowScale(source, scaleColumn, row);
    convertRow(from, op.getInputQuantAttr(), /*line=*/{}, {source}, first, size,
               input, row);
  });
}

void ScaledBlocks::loadWeight(Index number, int64_t size, Index group,
                              RowRange columns) {
  Value from = emitter.operand(op.getWeight());
  Value scales = emitter.operand(op.getWeightScale());
  Value zeroPoints = emitter.operand(op.getWeightZeroPoint());
  moe::QuantAttr quant = op.getWeightQuantAttr();
  Index scaleColumn = scales ? getScaleColumn(quant, number) : Index();
  Index first = number * block;
  int64_t length = moe::getRowLength(quant, block);
  Index firstInMemory = number * length;
  int64_t lineElements =
      kCacheLine * 8 / int64_t(getElementType(from).getIntOrFloatBitWidth());
  auto lead = [&](Index row) {
    return group ? Indices{group, row} : Indices{row};
  };
  for (int64_t projection = 0; projection < sizes.weightsPerColumn;
       ++projection)
    emitter.loop(columns.begin, columns.end, 1, [&](Index column) {
      Index to = getWeightRow(projection, column - columns.begin);
      Indices row = lead(moec::getWeightRow(emitter, op, projection, column));
      Line line;
      if (scales) {
        Indices at = lead(getScaleRow(emitter, op, projection, column));
        at.push_back(scaleColumn);
        F32 scale = loadWeightScale(scales, at, group, projection);
        if (hasMinima()) {
          line.factor = emitter.splat(scale, sizes.lanes);
          line.less =
              emitter.splat(emitter.loadF32(zeroPoints, at), sizes.lanes);
        } else {
          emitter.storeF32(scale, columnScales, to);
        }
        if (quant.getZeroPoint()) {
          I8 zeroPoint(b, memref::LoadOp::create(b, zeroPoints, at));
          line.less = emitter.splat(
              decodeInteger(zeroPoint, /*isUnsigned=*/true), sizes.lanes);
        }
      }
      // Prefetch the row's next block, which this loop reads after all rows.
      for (int64_t ahead = 0; ahead < length; ahead += lineElements) {
        Indices next(row);
        next.push_back(firstInMemory + (length + ahead));
        memref::PrefetchOp::create(b, from, next, /*isWrite=*/false,
                                   /*localityHint=*/2, /*isDataCache=*/true);
      }
      convertRow(from, quant, line, row, first, size, weight, to);
    });
}

F32 ScaledBlocks::loadWeightScale(Value scales, const Indices &at, Index group,
                                  int64_t projection) {
  F32 scale = loadScale(emitter, scales, at);
  Value factors = emitter.operand(op.getWeightGlobalScale());
  if (!factors)
    return scale;
  Indices index;
  if (group)
    index.push_back(group);
  index.push_back(emitter.index(moe::getSecondScale(
      op.getWeightQuantAttr(), projection, op.getLayoutAttr())));
  return scale * emitter.loadF32(factors, index);
}

bool ScaledBlocks::hasMinima() {
  moe::QuantAttr quant = op.getWeightQuantAttr();
  return quant && quant.getMinimum();
}

void ScaledBlocks::convertRow(Value from, moe::QuantAttr quant, Line line,
                              const Indices &row, Index first, int64_t size,
                              Value to, Index toRow) {
  int64_t implied = quant ? moe::getImpliedZeroPoint(quant) : 0;
  if (implied)
    line.less = emitter.splat(double(implied), sizes.lanes);
  for (int64_t done = 0; done < block; done += sizes.lanes) {
    int64_t count = std::clamp<int64_t>(size - done, 0, sizes.lanes);
    F32 values = count ? decode(from, quant, row, first + done, count)
                       : emitter.splat(0.0, sizes.lanes);
    if (line.less && count) {
      if (line.factor)
        values = values * line.factor;
      values = values - line.less;
      if (count < sizes.lanes)
        values = select(emitter.mask(emitter.index(count), sizes.lanes), values,
                        0.0);
    }
    emitter.storeVector(values, to, {toRow, emitter.index(done)});
  }
}

/// Decodes `lanes` elements to f32; those from `count` on are decoded from zero
/// bits.
F32 ScaledBlocks::decode(Value from, moe::QuantAttr quant, const Indices &row,
                         Index first, int64_t count) {
  if (quant && quant.getPacking() == moe::Packing::Pairs) {
    I8 pairs = loadBytes(from, row, first / 2, sizes.lanes / 2, count / 2);
    return decodeElements(emitter, quant, splitPairs(pairs));
  }
  if (quant)
    return decodeElements(emitter, quant,
                          loadBytes(from, row, first, sizes.lanes, count));
  Indices indices(row);
  indices.push_back(first);
  Flag mask;
  if (count < sizes.lanes)
    mask = emitter.mask(emitter.index(count), sizes.lanes);
  return emitter.loadVector(from, indices, sizes.lanes, mask);
}

/// Loads `length` bytes; those from `count` on are 0.
I8 ScaledBlocks::loadBytes(Value from, const Indices &row, Index first,
                           int64_t length, int64_t count) {
  auto bytes = VectorType::get(length, b.getI8Type());
  Indices indices(row);
  indices.push_back(first);
  if (count == length)
    return {b, vector::BitCastOp::create(
                   b, bytes, emitter.loadElements(from, indices, length))};
  Value loaded = emitter.constant(bytes, b.getI8IntegerAttr(0));
  for (int64_t i = 0; i < count; ++i) {
    indices.back() = first + i;
    Value one = arith::BitcastOp::create(
        b, b.getI8Type(), memref::LoadOp::create(b, from, indices));
    loaded = vector::InsertOp::create(b, one, loaded, i);
  }
  return {b, loaded};
}

F32 ScaledBlocks::getFactors(Index row, int64_t projection, Index column,
                             int64_t length) {
  F32 columns, scale;
  if (columnScales)
    columns = emitter.loadVector(columnScales, getWeightRow(projection, column),
                                 length);
  if (rowScales)
    scale = emitter.splat(emitter.loadF32(rowScales, row), length);
  if (!columns && !scale)
    return emitter.splat(1.0, length);
  if (!columns || !scale)
    return columns ? columns : scale;
  return scale * columns;
}
