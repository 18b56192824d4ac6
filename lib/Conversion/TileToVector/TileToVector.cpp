//===- TileToVector.cpp - tile kernels to loops and vectors -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Emit.h"

#include "moec/Conversion/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTTILETOVECTORPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

FailureOr<tile::ConfigAttr> moec::requireConfig(Operation *op,
                                                tile::ConfigAttr config,
                                                StringRef schedule) {
  if (!config) {
    op->emitOpError("has no config; run tile-assign-config first");
    return failure();
  }
  if (config.getSchedule() != schedule) {
    op->emitOpError("has the schedule '")
        << config.getSchedule() << "', and on the CPU it needs '" << schedule
        << "'";
    return failure();
  }
  return config;
}

LogicalResult moec::requirePositive(Operation *op, StringRef field,
                                    int64_t value) {
  if (value > 0)
    return success();
  return op->emitOpError("needs a config with ")
         << field << " > 0, got " << value;
}

LogicalResult moec::requireLanes(Operation *op, int64_t lanes) {
  if (lanes == 4 || lanes == 8 || lanes == 16)
    return success();
  return op->emitOpError("needs a config with lanes = 4, 8 or 16, got ")
         << lanes;
}

namespace {

/// The one phase of a kernel; constants beside it are allowed.
FailureOr<Operation *> onlyPhase(tile::KernelOp kernel) {
  Operation *phase = nullptr;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    if (op.hasTrait<OpTrait::ConstantLike>())
      continue;
    if (phase) {
      op.emitOpError(
          "is a second phase of its kernel; run tile-split-phases first");
      return failure();
    }
    phase = &op;
  }
  if (!phase) {
    kernel.emitOpError("has no phase");
    return failure();
  }
  return phase;
}

LogicalResult emitPhase(Operation *phase, KernelEmitter &emitter) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(phase)
      .Case([&](tile::ContractOp op) { return emitContract(op, emitter); })
      .Case([&](tile::TopKOp op) { return emitTopK(op, emitter); })
      .Case([&](tile::RankOp op) { return emitRank(op, emitter); })
      .Case([&](tile::RowMapOp op) { return emitRowMap(op, emitter); })
      .Case([&](tile::GatherReduceOp op) {
        return emitGatherReduce(op, emitter);
      })
      .Default([](Operation *op) {
        return op->emitOpError("is not a phase that the CPU can run");
      });
}

LogicalResult convertKernel(tile::KernelOp kernel) {
  FailureOr<Operation *> phase = onlyPhase(kernel);
  if (failed(phase))
    return failure();
  OpBuilder builder(kernel);
  SmallVector<Type> inputs(kernel.getFunctionType().getInputs());
  inputs.push_back(builder.getIndexType());
  auto func = func::FuncOp::create(builder, kernel.getLoc(), kernel.getName(),
                                   builder.getFunctionType(inputs, {}));
  func->setAttr("moec.kernel", builder.getUnitAttr());
  func.addEntryBlock();
  KernelEmitter emitter(func, kernel);
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
