//===- Sm80RowMap.cpp - the schedule sm80.row_map ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns `panel` columns of a token, and a thread `lanes` adjacent ones.
// `lanes` divides the number of columns, so no thread has a partial vector.

#include "../../Emit.h"
#include "../../ThreadEmitter.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitSm80RowMap(Operation *phase, KernelBody body) {
  auto op = cast<tile::RowMapOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  ImplicitLocOpBuilder &b = emitter.b;
  auto config = cast<tile::Sm80RowMapAttr>(op.getConfigAttr());
  int64_t lanes = config.getVectorWidth(), panel = config.getColumnsPerCta();
  Value input = emitter.operand(op.getInput());
  Value result = emitter.operand(op.getResult());
  int64_t columns = getColumns(result);
  Value panels = emitter.index(llvm::divideCeil(columns, panel));
  Value token = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value first = arith::RemUIOp::create(b, emitter.cta(), panels);
  Value offset = emitter.mul(emitter.toIndex(emitter.thread()), lanes);
  Value column = emitter.add(emitter.mul(first, panel), offset);
  Value hasColumns = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, column,
                                           emitter.index(columns));
  LogicalResult status = success();
  auto map = [&] {
    SmallVector<Value> args{emitter.loadVector(input, {token, column}, lanes)};
    for (Value operand : op.getRowOperands()) {
      Value scalar =
          emitter.loadF32(emitter.operand(operand), {token, emitter.index(0)});
      args.push_back(emitter.splat(scalar, lanes));
    }
    for (Value operand : op.getElementwiseOperands())
      args.push_back(
          emitter.loadVector(emitter.operand(operand), {token, column}, lanes));
    FailureOr<Value> value = emitter.inlineRegion(op.getBody(), args);
    if (failed(value))
      status = failure();
    return succeeded(value) ? *value : emitter.splat(0.0, lanes);
  };
  emitter.ifThen(hasColumns, [&] {
    Value value;
    if (op.getNumValidTokens()) {
      Value isValid =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, token,
                                emitter.validTokens(op.getNumValidTokens()));
      value = emitter.choose(
          isValid, emitter.vectorType(b.getF32Type(), lanes),
          [&] { return SmallVector<Value>{map()}; },
          [&] { return SmallVector<Value>{emitter.splat(0.0, lanes)}; })[0];
    } else {
      value = map();
    }
    emitter.storeVector(value, result, {token, column});
  });
  return status;
}
