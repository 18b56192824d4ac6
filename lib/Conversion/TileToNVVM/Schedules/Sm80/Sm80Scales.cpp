//===- Sm80Scales.cpp - the scales of sm80.contract -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Scales.h"

#include "../../../Emission/ContractOperands.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

static constexpr int64_t kScaleBytes = 4;

Sm80Scales::Sm80Scales(ThreadEmitter &emitter, tile::ContractOp op,
                       const sm80::Contract &shape, Value group,
                       Value firstColumn)
    : emitter(emitter), b(emitter.b), op(op), shape(shape), group(group),
      firstColumn(firstColumn) {
  if (hasColumnsInLoop() && !shape.hasColumnScales)
    for (int64_t plane = 0; plane < shape.planes; ++plane)
      columns.push_back({addressOfColumn(plane, firstColumn)});
}

SmallVector<Value> Sm80Scales::getIndices(int64_t plane, Value column) {
  SmallVector<Value> indices{getScaleRow(emitter, op, plane, column),
                             emitter.index(0)};
  if (group)
    indices.insert(indices.begin(), group);
  return indices;
}

Value Sm80Scales::addressOfColumn(int64_t plane, Value column) {
  return emitter.address(emitter.operand(op.getWeightScale()),
                         getIndices(plane, column));
}

//===----------------------------------------------------------------------===//
// Inside the loop
//===----------------------------------------------------------------------===//

void Sm80Scales::findColumns(ValueRange ofThread) {
  Value last = emitter.index(shape.columns - 1);
  for (int64_t plane = 0; plane < shape.planes; ++plane) {
    auto &addresses = columns.emplace_back();
    for (Value own : ofThread) {
      Value column = emitter.add(firstColumn, emitter.toIndex(own));
      // Columns past the end repeat the last one; nobody reads their sums.
      if (shape.columns % shape.n)
        column = emitter.min(column, last);
      addresses.push_back(addressOfColumn(plane, column));
    }
  }
}

Value Sm80Scales::getOffset(moe::QuantAttr quant, Value step, int64_t part) {
  int64_t size = moe::getScaleGroup(quant).columns;
  Value number = step;
  if (size != shape.k)
    number = emitter.divide(
        emitter.scale(step, shape.k, part * shape.partDepth), size);
  // The last step may have parts behind the row's end.
  int64_t count = moe::getNumScaleColumns(quant, shape.depth);
  if (shape.getSteps() * shape.k > count * size)
    number = arith::MinSIOp::create(b, number, emitter.i32(count - 1));
  return arith::ExtUIOp::create(b, b.getI64Type(),
                                emitter.scale(number, kScaleBytes));
}

Sm80Scales::Factors Sm80Scales::load(Value step, int64_t part) {
  auto loadAll = [&](ArrayRef<Value> addresses, Value offset) {
    return llvm::map_to_vector(addresses, [&](Value address) {
      return emitter.load(b.getF32Type(), emitter.advance(address, offset),
                          kScaleBytes);
    });
  };
  Factors factors;
  if (hasRowsInLoop())
    factors.rows = loadAll(rows, getOffset(op.getInputQuantAttr(), step, part));
  if (hasColumnsInLoop()) {
    Value offset = getOffset(op.getWeightQuantAttr(), step, part);
    for (ArrayRef<Value> plane : columns)
      factors.columns.push_back(loadAll(plane, offset));
  }
  return factors;
}

SmallVector<Value> Sm80Scales::add(const Factors &factors, ValueRange products,
                                   ValueRange sums,
                                   function_ref<Place(int64_t)> placeOf) {
  // [column][row] of a plane, with one row, or column, for all.
  SmallVector<SmallVector<Value>> table;
  int64_t plane = -1;
  auto makeTable = [&] {
    table.clear();
    if (factors.columns.empty())
      table.push_back(factors.rows);
    else
      for (Value column : factors.columns[plane]) {
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
    if (place.plane != plane) {
      plane = place.plane;
      makeTable();
    }
    ArrayRef<Value> column = table[table.size() == 1 ? 0 : place.column];
    Value factor = column[column.size() == 1 ? 0 : place.row];
    next.push_back(math::FmaOp::create(b, product, factor, sums[i]));
  }
  return next;
}

//===----------------------------------------------------------------------===//
// Behind it
//===----------------------------------------------------------------------===//

Value Sm80Scales::apply(int64_t plane, Value sums, Value source, Value column) {
  auto type = cast<VectorType>(sums.getType());
  int64_t lanes = type.getNumElements();
  Value factor;
  if (shape.scales.weight == ScaleTime::InEpilogue) {
    Value scales = emitter.operand(op.getWeightScale());
    bool isOne = moe::getScaleGroup(op.getWeightQuantAttr()).rows ==
                 moe::ScaleGroup::kAll;
    SmallVector<Value> elements;
    for (int64_t lane = 0; lane < (isOne ? 1 : lanes); ++lane)
      elements.push_back(emitter.loadF32(
          scales, getIndices(plane, emitter.add(column, lane))));
    factor = isOne ? emitter.splat(elements.front(), lanes)
                   : Value(vector::FromElementsOp::create(b, type, elements));
  }
  if (shape.scales.input == ScaleTime::InEpilogue) {
    Value row = emitter.splat(loadInputScale(emitter, op, source), lanes);
    factor = factor ? Value(arith::MulFOp::create(b, row, factor)) : row;
  }
  return factor ? Value(arith::MulFOp::create(b, sums, factor)) : sums;
}
