//===- RowMap.cpp - the schedule gpu.row_map --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns `ctaColumns` columns of a token, and a thread `lanes` adjacent
// ones. `lanes` divides the number of columns, so no thread has a partial
// vector.

#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitGpuRowMap(Operation *phase, KernelBody body) {
  auto op = cast<tile::RowMapOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto config = cast<tile::GpuRowMapAttr>(op.getConfigAttr());
  int64_t lanes = config.getVectorWidth(),
          ctaColumns = config.getColumnsPerCta();
  Value input = emitter.operand(op.getInput());
  Value result = emitter.operand(op.getResult());
  int64_t columns = getColumns(result);
  auto columnTiles = int64_t(llvm::divideCeil(columns, ctaColumns));
  Index token = emitter.cta() / columnTiles;
  Index first = emitter.cta() % columnTiles;
  Index offset = emitter.toIndex(emitter.thread()) * lanes;
  Index column = first * ctaColumns + offset;
  LogicalResult status = success();
  auto zeros = [&] { return F32(emitter.b, emitter.splat(0.0, lanes)); };
  auto map = [&] {
    SmallVector<Value> args{emitter.loadVector(input, {token, column}, lanes)};
    for (Value operand : op.getRowOperands()) {
      F32 scalar =
          emitter.loadF32(emitter.operand(operand), {token, emitter.index(0)});
      args.push_back(emitter.splat(scalar, lanes));
    }
    for (Value operand : op.getElementwiseOperands())
      args.push_back(
          emitter.loadVector(emitter.operand(operand), {token, column}, lanes));
    FailureOr<Value> value = emitter.inlineRegion(op.getBody(), args);
    if (failed(value))
      status = failure();
    return succeeded(value) ? F32(emitter.b, *value) : zeros();
  };
  emitter.ifThen(column.isBelow(columns), [&] {
    F32 value;
    if (op.getNumValidTokens())
      value = emitter.choose(
          token < emitter.validTokens(op.getNumValidTokens()), map, zeros);
    else
      value = map();
    emitter.storeVector(value, result, {token, column});
  });
  return status;
}
