//===- ScaledBlocks.cpp - blocks of quantized operands as f32 ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScaledBlocks.h"

#include "../Emission/ContractOperands.h"
#include "Decode.h"
#include "moec/Analysis/Cpu.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

/// Bytes per prefetch.
static constexpr int64_t kCacheLine = 64;

ScaledBlocks::ScaledBlocks(KernelEmitter &emitter, tile::ContractOp op,
                           Sizes sizes)
    : emitter(emitter), b(emitter.b), op(op), sizes(sizes),
      depth(moe::getRowWidth(
          op.getInputQuantAttr(),
          cast<MemRefType>(op.getInput().getType()).getShape().back())),
      block(cpu::getDecodedColumns(op)) {
  Type f32 = b.getF32Type();
  int64_t weightRows = sizes.weightsPerColumn * sizes.columns;
  input = emitter.scratch({sizes.rows, block}, f32);
  weight = emitter.scratch({weightRows, block}, f32);
  if (op.getInputScale())
    rowScales = emitter.scratch({sizes.rows}, f32);
  if (op.getWeightScale() && !hasMinima())
    columnScales = emitter.scratch({weightRows}, f32);
}

Value ScaledBlocks::getWeightRow(int64_t projection, Value column) {
  return emitter.add(column, projection * sizes.columns);
}

void ScaledBlocks::forBlocks(Value group, Value count, RowRange columns,
                             function_ref<Value(Value)> getRow,
                             function_ref<void()> body) {
  auto visit = [&](Value number, int64_t size) {
    loadInput(number, size, count, getRow);
    loadWeight(number, size, group, columns);
    body();
  };
  emitter.forLoop(emitter.index(0), emitter.index(depth / block), 1,
                  [&](Value number) { visit(number, block); });
  if (int64_t left = depth % block)
    visit(emitter.index(depth / block), left);
}

Value ScaledBlocks::getScaleColumn(moe::QuantAttr quant, Value number) {
  int64_t columns = moe::getScaleGroup(quant).columns;
  if (columns == moe::ScaleGroup::kAll)
    return emitter.index(0);
  if (columns == block)
    return number;
  return arith::DivUIOp::create(b, number, emitter.index(columns / block));
}

void ScaledBlocks::loadInput(Value number, int64_t size, Value count,
                             function_ref<Value(Value)> getRow) {
  Value from = emitter.operand(op.getInput());
  Value scales = emitter.operand(op.getInputScale());
  Value scaleColumn =
      scales ? getScaleColumn(op.getInputQuantAttr(), number) : Value();
  bool hasOneScale =
      scales && cast<MemRefType>(scales.getType()).getRank() == 1;
  Value first = emitter.mul(number, block);
  emitter.forLoop(emitter.index(0), count, 1, [&](Value row) {
    Value source = getRow(row);
    if (scales)
      emitter.storeF32(hasOneScale
                           ? emitter.loadF32(scales, emitter.index(0))
                           : emitter.loadF32(scales, {source, scaleColumn}),
                       rowScales, row);
    convertRow(from, op.getInputQuantAttr(), /*line=*/{}, {source}, first, size,
               input, row);
  });
}

void ScaledBlocks::loadWeight(Value number, int64_t size, Value group,
                              RowRange columns) {
  Value from = emitter.operand(op.getWeight());
  Value scales = emitter.operand(op.getWeightScale());
  Value zeroPoints = emitter.operand(op.getWeightZeroPoint());
  moe::QuantAttr quant = op.getWeightQuantAttr();
  Value scaleColumn = scales ? getScaleColumn(quant, number) : Value();
  Value first = emitter.mul(number, block);
  int64_t length = moe::getRowLength(quant, block);
  Value firstInMemory = emitter.mul(number, length);
  int64_t lineElements =
      kCacheLine * 8 / int64_t(getElementType(from).getIntOrFloatBitWidth());
  auto lead = [&](Value row) { return group ? Index{group, row} : Index{row}; };
  for (int64_t projection = 0; projection < sizes.weightsPerColumn;
       ++projection)
    emitter.forLoop(columns.begin, columns.end, 1, [&](Value column) {
      Value to = getWeightRow(projection,
                              arith::SubIOp::create(b, column, columns.begin));
      Index row = lead(moec::getWeightRow(emitter, op, projection, column));
      Line line;
      if (scales) {
        Index at = lead(getScaleRow(emitter, op, projection, column));
        at.push_back(scaleColumn);
        Value scale = loadWeightScale(scales, at, group, projection);
        if (hasMinima()) {
          line.factor = emitter.splat(scale, sizes.lanes);
          line.less =
              emitter.splat(emitter.loadF32(zeroPoints, at), sizes.lanes);
        } else {
          emitter.storeF32(scale, columnScales, to);
        }
        if (quant.getZeroPoint())
          line.less = emitter.splat(
              decodeInteger(emitter, memref::LoadOp::create(b, zeroPoints, at),
                            /*isUnsigned=*/true),
              sizes.lanes);
      }
      // Prefetch the row's next block, which this loop reads after all rows.
      for (int64_t ahead = 0; ahead < length; ahead += lineElements) {
        Index next(row);
        next.push_back(emitter.add(firstInMemory, length + ahead));
        memref::PrefetchOp::create(b, from, next, /*isWrite=*/false,
                                   /*localityHint=*/2, /*isDataCache=*/true);
      }
      convertRow(from, quant, line, row, first, size, weight, to);
    });
}

Value ScaledBlocks::loadWeightScale(Value scales, const Index &at, Value group,
                                    int64_t projection) {
  Value scale = loadScale(emitter, scales, at);
  Value factors = emitter.operand(op.getWeightGlobalScale());
  if (!factors)
    return scale;
  Index index;
  if (group)
    index.push_back(group);
  index.push_back(emitter.index(moe::getSecondScale(
      op.getWeightQuantAttr(), projection, op.getLayoutAttr())));
  return arith::MulFOp::create(b, scale, emitter.loadF32(factors, index));
}

bool ScaledBlocks::hasMinima() {
  moe::QuantAttr quant = op.getWeightQuantAttr();
  return quant && quant.getMinimum();
}

void ScaledBlocks::convertRow(Value from, moe::QuantAttr quant, Line line,
                              const Index &row, Value first, int64_t size,
                              Value to, Value toRow) {
  int64_t implied = quant ? moe::getImpliedZeroPoint(quant) : 0;
  if (implied)
    line.less = emitter.splat(double(implied), sizes.lanes);
  for (int64_t done = 0; done < block; done += sizes.lanes) {
    int64_t count = std::clamp<int64_t>(size - done, 0, sizes.lanes);
    Value values =
        count ? decode(from, quant, row, emitter.add(first, done), count)
              : emitter.splat(0.0, sizes.lanes);
    if (line.less && count) {
      if (line.factor)
        values = arith::MulFOp::create(b, values, line.factor);
      Value less = arith::SubFOp::create(b, values, line.less);
      if (count < sizes.lanes)
        less = arith::SelectOp::create(
            b, emitter.mask(emitter.index(count), sizes.lanes), less,
            emitter.splat(0.0, sizes.lanes));
      values = less;
    }
    emitter.storeVector(values, to, {toRow, emitter.index(done)});
  }
}

/// Decodes `lanes` elements to f32; those from `count` on are decoded from zero
/// bits.
Value ScaledBlocks::decode(Value from, moe::QuantAttr quant, const Index &row,
                           Value first, int64_t count) {
  if (quant && quant.getPacking() == moe::Packing::Pairs) {
    Value byte = arith::DivUIOp::create(b, first, emitter.index(2));
    Value pairs = loadBytes(from, row, byte, sizes.lanes / 2, count / 2);
    return decodeElements(emitter, quant, splitPairs(emitter, pairs));
  }
  if (quant)
    return decodeElements(emitter, quant,
                          loadBytes(from, row, first, sizes.lanes, count));
  Index indices(row);
  indices.push_back(first);
  Value mask;
  if (count < sizes.lanes)
    mask = emitter.mask(emitter.index(count), sizes.lanes);
  return emitter.loadVector(from, indices, sizes.lanes, mask);
}

/// Loads `length` bytes; those from `count` on are 0.
Value ScaledBlocks::loadBytes(Value from, const Index &row, Value first,
                              int64_t length, int64_t count) {
  auto bytes = VectorType::get(length, b.getI8Type());
  Index indices(row);
  indices.push_back(first);
  if (count == length) {
    auto type = VectorType::get(length, getElementType(from));
    return vector::BitCastOp::create(
        b, bytes, vector::LoadOp::create(b, type, from, indices));
  }
  Value loaded = emitter.constant(bytes, b.getI8IntegerAttr(0));
  for (int64_t i = 0; i < count; ++i) {
    indices.back() = emitter.add(first, i);
    Value one = arith::BitcastOp::create(
        b, b.getI8Type(), memref::LoadOp::create(b, from, indices));
    loaded = vector::InsertOp::create(b, one, loaded, i);
  }
  return loaded;
}

Value ScaledBlocks::getFactors(Value row, int64_t projection, Value column,
                               int64_t length) {
  Value columns, scale;
  if (columnScales)
    columns = emitter.loadVector(columnScales, getWeightRow(projection, column),
                                 length);
  if (rowScales)
    scale = emitter.splat(emitter.loadF32(rowScales, row), length);
  if (!columns && !scale)
    return emitter.splat(1.0, length);
  if (!columns || !scale)
    return columns ? columns : scale;
  return arith::MulFOp::create(b, scale, columns);
}
