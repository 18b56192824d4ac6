//===- QuantizeRows.cpp - scales of whole rows ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Quantization with one scale per row. If rows fit in a warp's registers, each
// warp has one at a time, or a few short ones: it reads them once, and waits
// for no other warp.
//
// Longer rows are processed by a CTA each, every gridDim-th. Its threads go
// through the row twice, in adjacent vectors: for the largest magnitude, which
// is reduced by shuffles and in shared memory, and for the quantized values.
// The second time the row comes from a cache. With a given scale it is read
// once.

#include "QuantizeRows.h"

#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;
using namespace moec;

namespace {

/// Shared code for whole rows.
class Rows : public QuantizingThreads {
public:
  Rows(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : QuantizingThreads(op, emitter, convertsFloat8),
        given(emitter.operand(op.getTensorScale())) {}

protected:
  /// Maximum over the lanes of the warp, in all of them.
  F32 shareInWarp(F32 largest);

  /// The scale of all rows; null if each has its own.
  Value given;
};

/// Rows that a warp holds in registers.
class HeldRows : public Rows {
public:
  using Rows::Rows;

  /// Quantizes the rows `first`, `first + step`, ... below `rows`, `atOnce` of
  /// them at a time.
  void emit(Index first, Index step, Index rows, int64_t atOnce);

private:
  struct Row {
    /// The row, clamped to the last one.
    Index number;
    /// Null: the row exists.
    Flag exists;
    /// The lane's vectors.
    SmallVector<F32> values;
  };
  Row load(Index number, Index rows, bool isFirst);
  void quantize(const Row &row);
  /// The first column of the lane's vector, and whether it is inside the row
  /// (null: yes).
  std::pair<Index, Flag> getColumn(int64_t vector);
};

/// Rows that a CTA processes one at a time.
class RowQuantizer : public Rows {
public:
  RowQuantizer(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : Rows(op, emitter, convertsFloat8) {
    if (!given)
      warpMaxima = emitter.scratch({emitter.getNumWarps()}, b.getF32Type());
  }

  void emitRow(Index row);

private:
  /// Vectors of a thread in flight.
  static constexpr int64_t kAtOnce = 4;

  /// Some of the thread's vectors of a row, with their first columns.
  struct Vectors {
    SmallVector<Index> columns;
    SmallVector<F32> values;
  };
  /// Loads vectors from `column` on; past the row's end they repeat its last
  /// one.
  Vectors load(Index row, Index column);
  F32 findLargest(Index row);
  /// Maximum over all threads, in all of them.
  F32 share(F32 largest);
  /// Stores the row's vectors, quantized by `quantize`.
  void store(Index row, function_ref<Value(F32)> quantize);
  /// The first column of the thread, and the stride between iterations.
  Index getFirst() { return emitter.toIndex(emitter.thread()) * shape.lanes; }
  int64_t getStep() const { return kAtOnce * shape.ctaElements; }

  /// One largest magnitude per warp, in shared memory.
  Value warpMaxima;
};

F32 Rows::shareInWarp(F32 largest) {
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  return largest;
}

//===----------------------------------------------------------------------===//
// A row of a warp
//===----------------------------------------------------------------------===//

std::pair<Index, Flag> HeldRows::getColumn(int64_t vector) {
  Index column = emitter.toIndex(emitter.lane() * shape.lanes +
                                 vector * kWarp * shape.lanes);
  if ((vector + 1) * kWarp * shape.lanes <= shape.columns)
    return {column, Flag()};
  return {column, column < shape.columns};
}

HeldRows::Row HeldRows::load(Index number, Index rows, bool isFirst) {
  Row row{number, Flag(), {}};
  if (!isFirst) {
    row.exists = number < rows;
    row.number = min(number, rows - 1);
  }
  // Past the row's end vectors repeat its last one.
  Index last = emitter.index(shape.columns - shape.lanes);
  for (int64_t i = 0; i < shape.getHeldVectors(); ++i) {
    auto [column, isInside] = getColumn(i);
    Index safe = isInside.isNull() ? column : min(column, last);
    row.values.push_back(
        emitter.loadVector(input, {row.number, safe}, shape.lanes));
  }
  return row;
}

void HeldRows::quantize(const Row &row) {
  Quantizer::Divisor divisor;
  F32 byGiven;
  if (given)
    byGiven = emitter.loadF32(given, emitter.index(0));
  else
    divisor =
        quantizer.getDivisor(shareInWarp(quantizer.findLargest(row.values)));
  auto storeIf = [&](Flag condition, function_ref<void()> store) {
    if (!row.exists.isNull())
      condition = condition.isNull() ? row.exists : condition & row.exists;
    condition.isNull() ? store() : emitter.ifThen(condition, store);
  };
  for (auto [i, values] : llvm::enumerate(row.values)) {
    Value quantizedValues = given ? quantizer.encodeBy(values, byGiven)
                                  : quantizer.encode(values, divisor);
    auto [column, isInside] = getColumn(i);
    storeIf(isInside, [&, column = column] {
      emitter.store(quantizedValues,
                    emitter.address(quantized, {row.number, column}),
                    shape.lanes * quantizer.getValueBytes());
    });
  }
  if (given)
    return;
  storeIf(emitter.lane() == 0, [&] {
    emitter.storeF32(divisor.scale, scale, {row.number, emitter.index(0)});
  });
}

void HeldRows::emit(Index first, Index step, Index rows, int64_t atOnce) {
  emitter.loop(first, rows, step * atOnce, [&](Index number) {
    SmallVector<Row> held;
    for (int64_t i = 0; i < atOnce; ++i) {
      held.push_back(load(number, rows, /*isFirst=*/i == 0));
      number = number + step;
    }
    for (const Row &row : held)
      quantize(row);
  });
}

//===----------------------------------------------------------------------===//
// A row of a CTA
//===----------------------------------------------------------------------===//

RowQuantizer::Vectors RowQuantizer::load(Index row, Index column) {
  Vectors vectors;
  Index last = emitter.index(shape.columns - shape.lanes);
  for (int64_t i = 0; i < kAtOnce; ++i) {
    vectors.columns.push_back(column + i * shape.ctaElements);
    vectors.values.push_back(emitter.loadVector(
        input, {row, min(vectors.columns.back(), last)}, shape.lanes));
  }
  return vectors;
}

F32 RowQuantizer::findLargest(Index row) {
  return emitter.loop(getFirst(), emitter.index(shape.columns), getStep(),
                      emitter.f32(0), [&](Index column, F32 largest) {
                        return quantizer.findLargest(load(row, column).values,
                                                     largest);
                      });
}

F32 RowQuantizer::share(F32 largest) {
  largest = shareInWarp(largest);
  Flag isFirst = emitter.lane() == 0;
  // All threads have read the contents for the row before.
  emitter.barrier();
  emitter.ifThen(isFirst, [&] {
    emitter.storeF32(largest, warpMaxima, emitter.toIndex(emitter.warp()));
  });
  emitter.barrier();
  for (int64_t warp = 0; warp < emitter.getNumWarps(); ++warp) {
    F32 other = emitter.loadF32(warpMaxima, emitter.index(warp));
    largest = warp ? quantizer.larger(largest, other) : other;
  }
  return largest;
}

void RowQuantizer::store(Index row, function_ref<Value(F32)> quantize) {
  Index end = emitter.index(shape.columns);
  emitter.loop(getFirst(), end, getStep(), [&](Index column) {
    Vectors vectors = load(row, column);
    for (auto [at, values] : llvm::zip(vectors.columns, vectors.values)) {
      Value quantizedValues = quantize(values);
      emitter.ifThen(at < end, [&, at = at] {
        emitter.store(quantizedValues, emitter.address(quantized, {row, at}),
                      shape.lanes * quantizer.getValueBytes());
      });
    }
  });
}

void RowQuantizer::emitRow(Index row) {
  if (given) {
    F32 given = emitter.loadF32(this->given, emitter.index(0));
    return store(row,
                 [&](F32 values) { return quantizer.encodeBy(values, given); });
  }
  Quantizer::Divisor divisor = quantizer.getDivisor(share(findLargest(row)));
  store(row, [&](F32 values) { return quantizer.encode(values, divisor); });
  emitter.ifThen(emitter.thread() == 0, [&] {
    emitter.storeF32(divisor.scale, scale, {row, emitter.index(0)});
  });
}

} // namespace

QuantizingThreads::QuantizingThreads(tile::QuantizeOp op,
                                     ThreadEmitter &emitter,
                                     bool convertsFloat8)
    : emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
      input(emitter.operand(op.getInput())),
      quantizer(b, getElementType(input), op.getQuant(), convertsFloat8),
      quantized(emitter.operand(op.getQuantized())),
      scale(emitter.operand(op.getScale())) {}

Index moec::countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter) {
  Value offsets = emitter.operand(op.getOffsets());
  if (!offsets)
    return emitter.tokens();
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  return emitter.loadIndex(offsets, emitter.index(groups));
}

void moec::emitHeldRows(tile::QuantizeOp op, ThreadEmitter &emitter,
                        bool convertsFloat8, Index first, Index step,
                        Index rows, int64_t atOnce) {
  HeldRows(op, emitter, convertsFloat8).emit(first, step, rows, atOnce);
}

void moec::emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                               bool convertsFloat8) {
  Index ctas = emitter.toIndex(emitter.numCtas());
  anygpu::Quantize shape(op, op.getConfigAttr());
  if (shape.areHeld()) {
    int64_t warps = emitter.getNumWarps();
    Index first = emitter.cta() * warps + emitter.toIndex(emitter.warp());
    Index step = ctas * warps;
    return emitHeldRows(op, emitter, convertsFloat8, first, step,
                        countQuantizedRows(op, emitter), shape.getHeldRows());
  }
  RowQuantizer quantizer(op, emitter, convertsFloat8);
  emitter.loop(emitter.cta(), countQuantizedRows(op, emitter), ctas,
               [&](Index row) { quantizer.emitRow(row); });
}
