//===- Sm80Quantize.cpp - the schedule sm80.quantize ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The scale groups of all rows form one list. A CTA takes ranges of it, strided
// by the grid. Some lanes of a warp share a group: each loads all its vectors
// before it uses the first, and the largest magnitude is reduced by shuffles.
// Threads that only another phase of the kernel needs are idle. For one scale
// per row, see Sm80QuantizeRows.cpp.

#include "../../Emit.h"
#include "Sm80QuantizeRows.h"
#include "moec/Analysis/Schedules.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

namespace {

class Sm80Quantize : public QuantizingThreads {
public:
  Sm80Quantize(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : QuantizingThreads(op, emitter, convertsFloat8), op(op) {}

  void emit();

private:
  /// A thread's share of one scale group.
  struct Share {
    /// The group's row, its index in the row, and whether the group exists.
    Value row, number, exists;
    /// First columns of the thread's vectors, and whether these are inside the
    /// row (null: always).
    SmallVector<Value> columns, inside;
    /// Vectors of f32.
    SmallVector<Value> values;
  };
  Share load(Value group, Value groups);
  void quantize(const Share &share);
  void store(const Share &share, const Quantizer::Divisor &divisor,
             size_t vector);

  tile::QuantizeOp op;
};

void Sm80Quantize::emit() {
  Value groups =
      emitter.mul(countQuantizedRows(op, emitter), shape.getRowGroups());
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  // All threads of a CTA take part in the shuffles, or none does.
  auto loop =
      scf::ForOp::create(b, emitter.mul(emitter.cta(), shape.getCtaGroups()),
                         groups, emitter.mul(ctas, shape.getCtaGroups()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value own = emitter.add(
      loop.getInductionVar(),
      emitter.toIndex(emitter.divide(emitter.thread(), shape.getLanes())));
  SmallVector<Share> shares;
  for (int64_t i = 0; i < shape.getCtaGroups(); i += shape.getGroupsAtOnce())
    shares.push_back(load(emitter.add(own, i), groups));
  for (const Share &share : shares)
    quantize(share);
}

Sm80Quantize::Share Sm80Quantize::load(Value group, Value groups) {
  Share share;
  share.exists =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, group, groups);
  // Groups past the end load the last one, and store nothing.
  Value last = arith::SubIOp::create(b, groups, emitter.index(1));
  Value safe = emitter.min(group, last);
  if (shape.columns % shape.size == 0) {
    // Groups are in memory order, so the list is a single row.
    share.row = emitter.index(0);
    share.number = safe;
  } else {
    Value rowGroups = emitter.index(shape.getRowGroups());
    share.row = arith::DivUIOp::create(b, safe, rowGroups);
    share.number = arith::RemUIOp::create(b, safe, rowGroups);
  }
  Value lane =
      emitter.toIndex(emitter.remainder(emitter.thread(), shape.getLanes()));
  for (int64_t i = 0; i < shape.getVectors(); ++i) {
    Value inGroup = emitter.add(emitter.mul(lane, shape.lanes),
                                i * shape.getLanes() * shape.lanes);
    Value column = emitter.add(emitter.mul(share.number, shape.size), inGroup);
    Value inside;
    if (shape.columns % shape.size) {
      // The vector size divides the row's length, so no vector is partial.
      inside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, column,
                                     emitter.index(shape.columns));
      column = emitter.min(column, emitter.index(shape.columns - shape.lanes));
    }
    Value values = emitter.loadVector(input, {share.row, column}, shape.lanes);
    if (inside)
      values = arith::SelectOp::create(b, inside, values,
                                       emitter.splat(0.0, shape.lanes));
    share.columns.push_back(column);
    share.inside.push_back(inside);
    share.values.push_back(values);
  }
  return share;
}

void Sm80Quantize::quantize(const Share &share) {
  Value largest = quantizer.findLargest(share.values);
  for (int64_t mask = 1; mask < shape.getLanes(); mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  Quantizer::Divisor divisor = quantizer.getDivisor(largest);
  for (size_t i = 0; i < share.values.size(); ++i)
    store(share, divisor, i);
  if (!scale)
    return;
  Value isFirst = arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      emitter.remainder(emitter.thread(), shape.getLanes()), emitter.i32(0));
  emitter.ifThen(arith::AndIOp::create(b, share.exists, isFirst), [&] {
    emitter.storeF32(divisor.scale, scale, {share.row, share.number});
  });
}

void Sm80Quantize::store(const Share &share, const Quantizer::Divisor &divisor,
                         size_t vector) {
  Value codes = quantizer.encode(share.values[vector], divisor);
  Value exists = share.exists;
  if (Value inside = share.inside[vector])
    exists = arith::AndIOp::create(b, exists, inside);
  emitter.ifThen(exists, [&] {
    emitter.store(
        codes, emitter.address(quantized, {share.row, share.columns[vector]}),
        shape.lanes * quantizer.getCodeBytes());
  });
}

} // namespace

LogicalResult moec::emitSm80Quantize(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::QuantizeOp>(phase);
  bool convertsFloat8 = body.target.convertsFloat8();
  if (sm80::Quantize(op, op.getConfigAttr()).areRows()) {
    emitRowQuantization(op, emitter, convertsFloat8);
    return success();
  }
  Sm80Quantize quantize(op, emitter, convertsFloat8);
  constexpr int64_t threads = sm80::Quantize::kThreads;
  if (body.threads == threads)
    quantize.emit();
  else
    emitter.ifThen(emitter.isLess(emitter.thread(), emitter.i32(threads)),
                   [&] { quantize.emit(); });
  return success();
}
