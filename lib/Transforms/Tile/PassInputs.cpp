//===- PassInputs.cpp - what passes over kernels begin with -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PassInputs.h"

#include "moec/Transforms/Passes.h"

using namespace mlir;
using namespace moec;

std::optional<PassInputs> PassInputs::read(Operation *op, StringRef pass,
                                           StringRef target, StringRef part,
                                           ArrayRef<std::string> configs,
                                           int64_t lanes) {
  std::optional<Target> found = Target::findFor(op, pass, target, lanes, part);
  if (!found)
    return std::nullopt;
  llvm::Expected<std::vector<ForcedConfig>> forced =
      parseForcedConfigs(configs);
  if (forced)
    return PassInputs{*found, std::move(*forced)};
  op->emitError(pass) << ": " << llvm::toString(forced.takeError());
  return std::nullopt;
}

LogicalResult moec::changePrograms(
    ModuleOp module, llvm::function_ref<bool(plan::ProgramOp)> change,
    llvm::function_ref<LogicalResult(OpPassManager &, Operation *)>
        runPipeline) {
  OpPassManager slots(plan::ProgramOp::getOperationName());
  slots.addPass(createPlanAssignSlotsPass());
  for (auto program : module.getOps<plan::ProgramOp>())
    if (change(program) && failed(runPipeline(slots, program)))
      return failure();
  return success();
}
