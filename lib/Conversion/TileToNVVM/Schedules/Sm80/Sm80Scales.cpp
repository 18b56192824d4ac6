//===- Sm80Scales.cpp - the scales of sm80.contract -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Scales.h"

#include "../../../Emission/ContractOperands.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

Sm80Scales::Sm80Scales(ThreadEmitter &emitter, tile::ContractOp op,
                       const sm80::Contract &shape, Float8 floats, Value group,
                       Value firstColumn)
    : emitter(emitter), b(emitter.b), op(op), shape(shape), floats(floats),
      group(group), firstColumn(firstColumn) {
  if (hasColumnsInLoop() && !shape.hasColumnScales)
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      columns.push_back({addressOfColumn(emitter.operand(op.getWeightScale()),
                                         projection, firstColumn)});
}

SmallVector<Value> Sm80Scales::getIndices(int64_t projection, Value column) {
  SmallVector<Value> indices{getScaleRow(emitter, op, projection, column),
                             emitter.index(0)};
  if (group)
    indices.insert(indices.begin(), group);
  return indices;
}

Value Sm80Scales::addressOfColumn(Value memref, int64_t projection,
                                  Value column) {
  return emitter.address(memref, getIndices(projection, column));
}

Value Sm80Scales::getColumn(Value own) {
  Value column = emitter.add(firstColumn, emitter.toIndex(own));
  // Columns past the end repeat the last one; their sums are never read.
  if (shape.columns % shape.n)
    column = emitter.min(column, emitter.index(shape.columns - 1));
  return column;
}

//===----------------------------------------------------------------------===//
// Types of scales
//===----------------------------------------------------------------------===//

Value Sm80Scales::loadByte(Value address) {
  Value byte = emitter.load(b.getI8Type(), address, 1);
  return arith::ExtUIOp::create(b, b.getI32Type(), byte);
}

Value Sm80Scales::loadAt(Type type, Value address) {
  if (!isa<Float8E4M3FNType>(type))
    return emitter.loadScale(type, address);
  PairDecoder pairs(b, Elements::E4M3, b.getF16Type(), floats);
  return pairs.split(pairs.decode(loadByte(address), 0)).first;
}

Value Sm80Scales::load(Type type, Value address, Value number, int64_t bytes) {
  Value offset = arith::ExtUIOp::create(
      b, b.getI64Type(),
      emitter.scale(number, type.getIntOrFloatBitWidth() / 8));
  return loadAt(type, emitter.advance(emitter.advance(address, offset), bytes));
}

//===----------------------------------------------------------------------===//
// Inside the loop
//===----------------------------------------------------------------------===//

void Sm80Scales::findColumns(ValueRange ofThread) {
  Value scales = emitter.operand(op.getWeightScale());
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection) {
    auto &addresses = columns.emplace_back();
    for (Value own : ofThread)
      addresses.push_back(addressOfColumn(scales, projection, getColumn(own)));
  }
  if (!shape.hasMinima)
    return;
  // Both tensors have one shape and one type. Their addresses are shared,
  // because addresses take many registers.
  auto begin = [&](Value memref) -> Value {
    SmallVector<Value> first(cast<MemRefType>(memref.getType()).getRank(),
                             emitter.index(0));
    return LLVM::PtrToIntOp::create(b, b.getI64Type(),
                                    emitter.address(memref, first));
  };
  toMinima = arith::SubIOp::create(
      b, begin(emitter.operand(op.getWeightZeroPoint())), begin(scales));
}

Value Sm80Scales::limit(moe::QuantAttr quant, Value number) {
  int64_t count = moe::getNumScaleColumns(quant, shape.depth);
  if (shape.getSteps() * shape.k <= count * moe::getScaleGroup(quant).columns)
    return number;
  return arith::MinSIOp::create(b, number, emitter.i32(count - 1));
}

Value Sm80Scales::getNumber(moe::QuantAttr quant, Value step, int64_t part) {
  int64_t size = moe::getScaleGroup(quant).columns;
  Value number = step;
  if (size != shape.k)
    number = emitter.divide(
        emitter.scale(step, shape.k, part * shape.partDepth), size);
  return limit(quant, number);
}

Sm80Scales::Factors Sm80Scales::load(Value step, int64_t part) {
  auto loadAll = [&](moe::QuantAttr quant, ArrayRef<Value> addresses,
                     Value number) {
    return llvm::map_to_vector(addresses, [&](Value address) {
      return load(quant.getScale(), address, number);
    });
  };
  Factors factors;
  if (hasRowsInLoop()) {
    moe::QuantAttr quant = op.getInputQuantAttr();
    factors.rows = loadAll(quant, rows, getNumber(quant, step, part));
  }
  if (hasColumnsInLoop()) {
    moe::QuantAttr quant = op.getWeightQuantAttr();
    Value number = getNumber(quant, step, part);
    for (ArrayRef<Value> projection : columns) {
      factors.columns.push_back(loadAll(quant, projection, number));
      if (!toMinima)
        continue;
      factors.minima.push_back(
          llvm::map_to_vector(projection, [&](Value address) -> Value {
            Value minimum = load(quant.getScale(),
                                 emitter.advance(address, toMinima), number);
            return arith::NegFOp::create(b, minimum);
          }));
    }
  }
  return factors;
}

SmallVector<Value> Sm80Scales::add(const Factors &factors, ValueRange products,
                                   ValueRange rowSums, ValueRange sums,
                                   function_ref<Place(int64_t)> placeOf) {
  SmallVector<Value> scaledRows(rowSums);
  if (!factors.rows.empty())
    for (auto [row, scale] : llvm::zip(scaledRows, factors.rows))
      row = arith::MulFOp::create(b, row, scale);
  // [column][row] of a projection; one row, or column, may stand for all.
  SmallVector<SmallVector<Value>> table;
  int64_t projection = -1;
  auto makeTable = [&] {
    table.clear();
    if (factors.columns.empty())
      table.push_back(factors.rows);
    else
      for (Value column : factors.columns[projection]) {
        auto &entries = table.emplace_back();
        for (Value row : factors.rows)
          entries.push_back(arith::MulFOp::create(b, row, column));
        if (factors.rows.empty())
          entries.push_back(column);
      }
  };
  SmallVector<Value> next;
  for (auto [i, product] : llvm::enumerate(products)) {
    Place place = placeOf(i);
    if (place.projection != projection) {
      projection = place.projection;
      makeTable();
    }
    ArrayRef<Value> column = table[table.size() == 1 ? 0 : place.column];
    Value factor = column[column.size() == 1 ? 0 : place.row];
    Value sum = sums[i];
    if (!factors.minima.empty())
      sum = math::FmaOp::create(b, scaledRows[place.row],
                                factors.minima[projection][place.column], sum);
    next.push_back(math::FmaOp::create(b, product, factor, sum));
  }
  return next;
}

//===----------------------------------------------------------------------===//
// After the loop
//===----------------------------------------------------------------------===//

Value Sm80Scales::loadRowScale(int64_t projection, Value column) {
  Value scales = emitter.operand(op.getWeightScale());
  Type type = getElementType(scales);
  SmallVector<Value> indices = getIndices(projection, column);
  return isa<Float8E4M3FNType>(type)
             ? loadAt(type, emitter.address(scales, indices))
             : emitter.loadScale(scales, indices);
}

Value Sm80Scales::loadGlobalScale(int64_t projection) {
  SmallVector<Value> indices{emitter.index(moe::getSecondScale(
      op.getWeightQuantAttr(), projection, op.getLayoutAttr()))};
  if (group)
    indices.insert(indices.begin(), group);
  return emitter.loadF32(emitter.operand(op.getWeightGlobalScale()), indices);
}

Value Sm80Scales::apply(int64_t projection, Value sums, Value source,
                        Value column) {
  auto type = cast<VectorType>(sums.getType());
  int64_t lanes = type.getNumElements();
  Value factor;
  if (shape.scales.weight == ScaleTime::InEpilogue) {
    bool isOne = moe::getScaleGroup(op.getWeightQuantAttr()).rows ==
                 moe::ScaleGroup::kAll;
    SmallVector<Value> elements;
    for (int64_t lane = 0; lane < (isOne ? 1 : lanes); ++lane)
      elements.push_back(loadRowScale(projection, emitter.add(column, lane)));
    factor = isOne ? emitter.splat(elements.front(), lanes)
                   : Value(vector::FromElementsOp::create(b, type, elements));
  }
  auto multiply = [&](Value scale) {
    Value other = emitter.splat(scale, lanes);
    factor = factor ? Value(arith::MulFOp::create(b, other, factor)) : other;
  };
  if (op.getWeightGlobalScale())
    multiply(loadGlobalScale(projection));
  if (shape.scales.input == ScaleTime::InEpilogue)
    multiply(loadInputScale(emitter, op, source));
  return factor ? Value(arith::MulFOp::create(b, sums, factor)) : sums;
}
