//===- TileToVector.cpp - tile kernels to loops and vectors -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Cpu/Emit.h"

#include "moec/Conversion/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTTILETOVECTORPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

LogicalResult moec::requireLanes(Operation *op, int64_t lanes) {
  if (lanes == 4 || lanes == 8 || lanes == 16)
    return success();
  return op->emitOpError("needs a config with lanes = 4, 8 or 16, got ")
         << lanes;
}

namespace {

LogicalResult emitPhase(Operation *phase, KernelEmitter &emitter) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(phase)
#define MOEC_CPU_SCHEDULE(NAME, OP)                                            \
  .Case([&](tile::OP op) { return emit##NAME(op, emitter); })
#include "moec/Schedules/Schedules.def"
      .Default([](Operation *op) {
        return op->emitOpError("is not a phase that the CPU can run");
      });
}

LogicalResult convertKernel(tile::KernelOp kernel) {
  FailureOr<Operation *> phase = getOnlyPhase(kernel);
  if (failed(phase))
    return failure();
  OpBuilder builder(kernel);
  SmallVector<Type> inputs(kernel.getFunctionType().getInputs());
  inputs.push_back(builder.getIndexType());
  auto func = func::FuncOp::create(builder, kernel.getLoc(), kernel.getName(),
                                   builder.getFunctionType(inputs, {}));
  func->setAttr("moec.kernel", builder.getUnitAttr());
  func.addEntryBlock();
  KernelEmitter emitter(func, kernel, func.getArguments().back());
  emitter.b.setLoc((*phase)->getLoc());
  if (failed(emitPhase(*phase, emitter)))
    return failure();
  func::ReturnOp::create(emitter.b);
  if (failed(expandMath(func)))
    return failure();
  kernel.erase();
  return success();
}

struct ConvertTileToVector
    : moec::impl::ConvertTileToVectorPassBase<ConvertTileToVector> {
  void runOnOperation() override {
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>()))
      if (failed(convertKernel(kernel)))
        return signalPassFailure();
  }
};

} // namespace
