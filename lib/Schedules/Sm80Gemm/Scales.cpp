//===- Scales.cpp - the scales of sm80.gemm ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scales.h"

#include "KernelBuilder/GemmOperands.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace moec;

Sm80Scales::Sm80Scales(ThreadEmitter &emitter, tile::GemmOp op,
                       const sm80::GemmShape &shape, Float8 floats, Index group,
                       Index firstColumn)
    : emitter(emitter), b(emitter.b), op(op), shape(shape), floats(floats),
      group(group), firstColumn(firstColumn) {
  if (hasColumnsInLoop() && !shape.hasColumnScales)
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      columns.push_back({addressOfColumn(emitter.operand(op.getWeightScale()),
                                         projection, firstColumn)});
}

SmallVector<Value> Sm80Scales::getIndices(int64_t projection, Index column) {
  SmallVector<Value> indices{getScaleRow(emitter, op, projection, column),
                             emitter.index(0)};
  if (group)
    indices.insert(indices.begin(), group);
  return indices;
}

Value Sm80Scales::addressOfColumn(Value memref, int64_t projection,
                                  Index column) {
  return emitter.address(memref, getIndices(projection, column));
}

Index Sm80Scales::getColumn(I32 own) {
  Index column = firstColumn + emitter.toIndex(own);
  // Columns past the end repeat the last one; their sums are never read.
  return shape.columns % shape.n ? min(column, shape.columns - 1) : column;
}

//===----------------------------------------------------------------------===//
// Types of scales
//===----------------------------------------------------------------------===//

F32 Sm80Scales::loadAt(Type type, Value address) {
  if (!isa<Float8E4M3FNType>(type))
    return {b, emitter.loadScale(type, address)};
  PairDecoder pairs(b, Elements::E4M3, b.getF16Type(), floats);
  return pairs.split(pairs.decode(emitter.loadBytes(address, 1), 0)).first;
}

F32 Sm80Scales::load(Type type, Value address, I32 number, int64_t bytes) {
  I64 offset = (number * (type.getIntOrFloatBitWidth() / 8)).toI64();
  return loadAt(type, emitter.advance(emitter.advance(address, offset), bytes));
}

//===----------------------------------------------------------------------===//
// Inside the loop
//===----------------------------------------------------------------------===//

void Sm80Scales::findColumns(ArrayRef<I32> ofThread) {
  Value scales = emitter.operand(op.getWeightScale());
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection) {
    auto &addresses = columns.emplace_back();
    for (I32 own : ofThread)
      addresses.push_back(addressOfColumn(scales, projection, getColumn(own)));
  }
  if (!shape.hasMinima)
    return;
  // Both tensors have one shape and one type. Their addresses are shared,
  // because addresses take many registers.
  auto begin = [&](Value memref) {
    SmallVector<Value> first(cast<MemRefType>(memref.getType()).getRank(),
                             emitter.index(0));
    return I64(b, LLVM::PtrToIntOp::create(b, b.getI64Type(),
                                           emitter.address(memref, first)));
  };
  I64 minima = begin(emitter.operand(op.getWeightZeroPoint()));
  toMinima = minima - begin(scales);
}

I32 Sm80Scales::limit(moe::QuantAttr quant, I32 number) {
  int64_t count = moe::getNumScaleColumns(quant, shape.sizeK);
  if (shape.getSteps() * shape.k <= count * moe::getScaleGroup(quant).columns)
    return number;
  return min(number, count - 1);
}

I32 Sm80Scales::getNumber(moe::QuantAttr quant, I32 kTile, int64_t part) {
  int64_t size = moe::getScaleGroup(quant).columns;
  if (size == shape.k)
    return limit(quant, kTile);
  return limit(quant, (kTile * shape.k + part * shape.partK) / size);
}

Sm80Scales::Factors Sm80Scales::load(I32 kTile, int64_t part) {
  auto loadAll = [&](moe::QuantAttr quant, ArrayRef<Value> addresses,
                     I32 number) {
    return llvm::map_to_vector(addresses, [&](Value address) {
      return load(quant.getScale(), address, number);
    });
  };
  Factors factors;
  if (hasRowsInLoop()) {
    moe::QuantAttr quant = op.getInputQuantAttr();
    factors.rows = loadAll(quant, rows, getNumber(quant, kTile, part));
  }
  if (hasColumnsInLoop()) {
    moe::QuantAttr quant = op.getWeightQuantAttr();
    I32 number = getNumber(quant, kTile, part);
    for (ArrayRef<Value> projection : columns) {
      factors.columns.push_back(loadAll(quant, projection, number));
      if (!toMinima)
        continue;
      factors.minima.push_back(
          llvm::map_to_vector(projection, [&](Value address) {
            return -load(quant.getScale(), emitter.advance(address, toMinima),
                         number);
          }));
    }
  }
  return factors;
}

SmallVector<F32> Sm80Scales::add(const Factors &factors, ArrayRef<F32> products,
                                 ArrayRef<F32> rowSums, ArrayRef<F32> sums,
                                 function_ref<SumIndex(int64_t)> getIndex) {
  SmallVector<F32> scaledRows(rowSums);
  if (!factors.rows.empty())
    for (auto [row, scale] : llvm::zip(scaledRows, factors.rows))
      row = row * scale;
  // [column][row] of a projection; one row, or column, may stand for all.
  SmallVector<SmallVector<F32>> table;
  int64_t projection = -1;
  auto makeTable = [&] {
    table.clear();
    if (factors.columns.empty())
      table.push_back(factors.rows);
    else
      for (F32 column : factors.columns[projection]) {
        auto &entries = table.emplace_back();
        for (F32 row : factors.rows)
          entries.push_back(row * column);
        if (factors.rows.empty())
          entries.push_back(column);
      }
  };
  SmallVector<F32> next;
  for (auto [i, product] : llvm::enumerate(products)) {
    SumIndex index = getIndex(i);
    if (index.projection != projection) {
      projection = index.projection;
      makeTable();
    }
    ArrayRef<F32> column = table[table.size() == 1 ? 0 : index.column];
    F32 factor = column[column.size() == 1 ? 0 : index.row];
    F32 sum = sums[i];
    if (!factors.minima.empty())
      sum = fma(scaledRows[index.row], factors.minima[projection][index.column],
                sum);
    next.push_back(fma(product, factor, sum));
  }
  return next;
}

//===----------------------------------------------------------------------===//
// After the loop
//===----------------------------------------------------------------------===//

F32 Sm80Scales::loadRowScale(int64_t projection, Index column) {
  Value scales = emitter.operand(op.getWeightScale());
  Type type = getElementType(scales);
  SmallVector<Value> indices = getIndices(projection, column);
  if (isa<Float8E4M3FNType>(type))
    return loadAt(type, emitter.address(scales, indices));
  return {b, emitter.loadScale(scales, indices)};
}

F32 Sm80Scales::loadGlobalScale(int64_t projection) {
  SmallVector<Value> indices{emitter.index(moe::getSecondScale(
      op.getWeightQuantAttr(), projection, op.getLayoutAttr()))};
  if (group)
    indices.insert(indices.begin(), group);
  return emitter.loadF32(emitter.operand(op.getWeightGlobalScale()), indices);
}

F32 Sm80Scales::apply(int64_t projection, F32 sums, Index source,
                      Index column) {
  int64_t lanes = cast<VectorType>(sums.getType()).getNumElements();
  F32 factor;
  if (shape.scales.weight == ScaleTime::InEpilogue) {
    bool isOne = moe::getScaleGroup(op.getWeightQuantAttr()).rows ==
                 moe::ScaleGroup::kAll;
    SmallVector<F32> elements;
    for (int64_t lane = 0; lane < (isOne ? 1 : lanes); ++lane)
      elements.push_back(loadRowScale(projection, column + lane));
    factor = isOne ? emitter.splat(elements.front(), lanes)
                   : emitter.makeVector(ArrayRef(elements));
  }
  auto multiply = [&](F32 scale) {
    F32 other(b, emitter.splat(scale, lanes));
    factor = factor ? other * factor : other;
  };
  if (op.getWeightGlobalScale())
    multiply(loadGlobalScale(projection));
  if (shape.scales.input == ScaleTime::InEpilogue)
    multiply({b, loadInputScale(emitter, op, source)});
  return factor ? sums * factor : sums;
}
