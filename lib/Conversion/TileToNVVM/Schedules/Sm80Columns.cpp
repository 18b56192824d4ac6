//===- Sm80Columns.cpp - sm80.row_map and sm80.gather_reduce ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns `panel` columns of a token, a thread `lanes` neighbours of them.
// `lanes` divides the number of columns, so that no thread has a part of them.
// With `rows`, sm80.gather_reduce takes so many tokens at a time, a CTA every
// `rows`-th one.

#include "../../Emission/GatherReduce.h"
#include "../Emit.h"
#include "../ThreadEmitter.h"

using namespace mlir;
using namespace moec;

namespace {

/// Where a thread works.
struct Place {
  Value token, column;
};

/// Calls `body` in the threads that have columns, within their branch.
void forColumns(ThreadEmitter &emitter, tile::ConfigAttr config,
                int64_t columns, function_ref<void(Place)> body) {
  ImplicitLocOpBuilder &b = emitter.b;
  int64_t panel = config.getPanel();
  Value panels = emitter.index(llvm::divideCeil(columns, panel));
  Value token = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value first = arith::RemUIOp::create(b, emitter.cta(), panels);
  Value offset =
      emitter.mul(emitter.toIndex(emitter.thread()), config.getLanes());
  Value column = emitter.add(emitter.mul(first, panel), offset);
  Value hasColumns = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, column,
                                           emitter.index(columns));
  emitter.ifThen(hasColumns, [&] { body({token, column}); });
}

} // namespace

LogicalResult moec::emitSm80RowMap(Operation *phase, KernelBody body) {
  auto op = cast<tile::RowMapOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  tile::ConfigAttr config = op.getConfigAttr();
  int64_t lanes = config.getLanes();
  Value input = emitter.operand(op.getInput());
  Value result = emitter.operand(op.getResult());
  LogicalResult status = success();
  forColumns(emitter, config, getColumns(result), [&](Place at) {
    SmallVector<Value> args{
        emitter.loadVector(input, {at.token, at.column}, lanes)};
    for (Value operand : op.getRowOperands()) {
      Value scalar = emitter.loadF32(emitter.operand(operand),
                                     {at.token, emitter.index(0)});
      args.push_back(emitter.splat(scalar, lanes));
    }
    FailureOr<Value> value = emitter.inlineRegion(op.getBody(), args);
    if (failed(value))
      status = failure();
    else
      emitter.storeVector(*value, result, {at.token, at.column});
  });
  return status;
}

LogicalResult moec::emitSm80GatherReduce(Operation *phase, KernelBody body) {
  auto op = cast<tile::GatherReduceOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  tile::ConfigAttr config = op.getConfigAttr();
  int64_t lanes = config.getLanes();
  Value result = emitter.operand(op.getResult());
  GatherReduce reduce(op, emitter, lanes);
  Value valid = emitter.validTokens(op.getNumValidTokens());
  forColumns(emitter, config, getColumns(result), [&](Place at) {
    auto reduceToken = [&](Value token, ValueRange slots) {
      auto sum = [&] { reduce.emitColumnsAhead(token, at.column, slots); };
      if (!op.getNumValidTokens())
        return sum();
      Value isValid = arith::CmpIOp::create(
          emitter.b, arith::CmpIPredicate::slt, token, valid);
      emitter.ifThen(isValid, sum, [&] {
        emitter.storeVector(emitter.splat(0.0, lanes), result,
                            {token, at.column});
      });
    };
    SmallVector<Value> slots = reduce.loadSlots(at.token);
    if (!config.getRows())
      return reduceToken(at.token, slots);
    // Where the next token's rows are is on its way while this one's are added.
    Value last =
        arith::SubIOp::create(emitter.b, emitter.tokens(), emitter.index(1));
    emitter.forLoop(at.token, emitter.tokens(), config.getRows(), slots,
                    [&](Value token, ValueRange carried) {
                      Value next = emitter.add(token, config.getRows());
                      SmallVector<Value> nextSlots =
                          reduce.loadSlots(emitter.min(next, last));
                      reduceToken(token, carried);
                      return nextSlots;
                    });
  });
  return success();
}
