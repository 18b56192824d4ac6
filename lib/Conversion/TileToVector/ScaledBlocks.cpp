//===- ScaledBlocks.cpp - blocks of quantized operands as f32 ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScaledBlocks.h"

#include "../Emission/ContractOperands.h"
#include "moec/Analysis/Cpu.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

/// Bytes that one prefetch brings.
static constexpr int64_t kCacheLine = 64;

ScaledBlocks::ScaledBlocks(KernelEmitter &emitter, tile::ContractOp op,
                           Sizes sizes)
    : emitter(emitter), b(emitter.b), op(op), sizes(sizes),
      depth(cast<MemRefType>(op.getWeight().getType()).getShape().back()),
      block(cpu::getDecodedColumns(op)) {
  Type f32 = b.getF32Type();
  int64_t weightRows = sizes.planes * sizes.columns;
  input = emitter.scratch({sizes.rows, block}, f32);
  weight = emitter.scratch({weightRows, block}, f32);
  if (op.getInputScale())
    rowScales = emitter.scratch({sizes.rows}, f32);
  if (op.getWeightScale())
    columnScales = emitter.scratch({weightRows}, f32);
}

Value ScaledBlocks::getWeightRow(int64_t plane, Value column) {
  return emitter.add(column, plane * sizes.columns);
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
    convertRow(from, {source}, first, size, input, row);
  });
}

void ScaledBlocks::loadWeight(Value number, int64_t size, Value group,
                              RowRange columns) {
  Value from = emitter.operand(op.getWeight());
  Value scales = emitter.operand(op.getWeightScale());
  Value scaleColumn =
      scales ? getScaleColumn(op.getWeightQuantAttr(), number) : Value();
  Value first = emitter.mul(number, block);
  int64_t lineElements =
      kCacheLine * 8 / int64_t(getElementType(from).getIntOrFloatBitWidth());
  auto lead = [&](Value row) { return group ? Index{group, row} : Index{row}; };
  for (int64_t plane = 0; plane < sizes.planes; ++plane)
    emitter.forLoop(columns.begin, columns.end, 1, [&](Value column) {
      Value to =
          getWeightRow(plane, arith::SubIOp::create(b, column, columns.begin));
      Index row = lead(moec::getWeightRow(emitter, op, plane, column));
      if (scales) {
        Index scale = lead(getScaleRow(emitter, op, plane, column));
        scale.push_back(scaleColumn);
        emitter.storeF32(emitter.loadF32(scales, scale), columnScales, to);
      }
      // The row's next block is what this loop reads after all rows.
      for (int64_t ahead = 0; ahead < block; ahead += lineElements) {
        Index next(row);
        next.push_back(emitter.add(first, block + ahead));
        memref::PrefetchOp::create(b, from, next, /*isWrite=*/false,
                                   /*localityHint=*/2, /*isDataCache=*/true);
      }
      convertRow(from, row, first, size, weight, to);
    });
}

void ScaledBlocks::convertRow(Value from, const Index &row, Value first,
                              int64_t size, Value to, Value toRow) {
  for (int64_t done = 0; done < block; done += sizes.lanes) {
    int64_t count = std::clamp<int64_t>(size - done, 0, sizes.lanes);
    Value values = count ? decode(from, row, emitter.add(first, done), count)
                         : emitter.splat(0.0, sizes.lanes);
    emitter.storeVector(values, to, {toRow, emitter.index(done)});
  }
}

/// `lanes` elements as f32, of which those from `count` on are 0.
Value ScaledBlocks::decode(Value from, const Index &row, Value first,
                           int64_t count) {
  if (isa<Float8E4M3FNType>(getElementType(from)))
    return extend(loadBytes(from, row, first, count));
  Index indices(row);
  indices.push_back(first);
  Value mask;
  if (count < sizes.lanes)
    mask = emitter.mask(emitter.index(count), sizes.lanes);
  return emitter.loadVector(from, indices, sizes.lanes, mask);
}

/// `lanes` bytes, of which those from `count` on are 0.
Value ScaledBlocks::loadBytes(Value from, const Index &row, Value first,
                              int64_t count) {
  auto bytes = VectorType::get(sizes.lanes, b.getI8Type());
  Index indices(row);
  indices.push_back(first);
  if (count == sizes.lanes) {
    auto type = VectorType::get(sizes.lanes, getElementType(from));
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

/// The fields of e4m3 are moved into those of f16, where they stand for 2^-8 of
/// the value, for subnormals too. NaN is all digits set, to which f16 wants all
/// of the exponent.
Value ScaledBlocks::extend(Value bytes) {
  auto words = VectorType::get(sizes.lanes, b.getI16Type());
  auto constant = [&](int64_t value) {
    return emitter.constant(words, b.getI16IntegerAttr(int16_t(value)));
  };
  constexpr int64_t sign = 0x8000, digits = 0x3F80, exponent = 0x7C00;
  Value bits = arith::ExtSIOp::create(b, words, bytes);
  Value moved = arith::AndIOp::create(
      b, arith::ShLIOp::create(b, bits, constant(7)), constant(sign | digits));
  Value isNaN = arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      arith::AndIOp::create(b, moved, constant(digits)), constant(digits));
  Value halves = arith::SelectOp::create(
      b, isNaN, arith::OrIOp::create(b, moved, constant(exponent)), moved);
  Value narrow = arith::BitcastOp::create(
      b, VectorType::get(sizes.lanes, b.getF16Type()), halves);
  Value values = arith::ExtFOp::create(
      b, VectorType::get(sizes.lanes, b.getF32Type()), narrow);
  return arith::MulFOp::create(b, values, emitter.splat(256.0, sizes.lanes));
}

Value ScaledBlocks::getFactors(Value row, int64_t plane, Value column,
                               int64_t length) {
  Value columns, scale;
  if (columnScales)
    columns =
        emitter.loadVector(columnScales, getWeightRow(plane, column), length);
  if (rowScales)
    scale = emitter.splat(emitter.loadF32(rowScales, row), length);
  if (!columns || !scale)
    return columns ? columns : scale;
  return arith::MulFOp::create(b, scale, columns);
}
