//===- Interpreter.cpp - runs functions and kernels op by op ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/Interpreter.h"
#include "Machine.h"

#include "moec/Dialect/Plan/Plan.h"

#include <cstring>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

static std::string argumentName(FunctionOpInterface function, unsigned index) {
  if (auto name = function.getArgAttrOfType<StringAttr>(index, "moe.name"))
    return "argument '" + name.getValue().str() + "'";
  return "argument " + std::to_string(index);
}

static Status checkBody(FunctionOpInterface function) {
  if (function.getFunctionBody().hasOneBlock())
    return Status::ok();
  return invalidArgument("its body must be one block");
}

static Status bindArguments(Machine &machine, FunctionOpInterface function,
                            ArrayRef<TensorRef> tensors) {
  for (auto [i, tensor] : llvm::enumerate(tensors)) {
    Value value = function.getArgument(i);
    if (!isa<ShapedType>(value.getType()))
      return invalidArgument(argumentName(function, i) + " is not a tensor");
    if (Status status = machine.bind(value, tensor, argumentName(function, i));
        !status)
      return status;
  }
  return Status::ok();
}

static Status countMismatch(size_t expected, size_t found) {
  return invalidArgument("it takes " + std::to_string(expected) + " tensors, " +
                         std::to_string(found) + " were given");
}

static Result<std::vector<Tensor>> runFunction(func::FuncOp function,
                                               ArrayRef<TensorRef> inputs) {
  if (Status status = checkBody(function); !status)
    return status;
  if (inputs.size() != function.getNumArguments())
    return countMismatch(function.getNumArguments(), inputs.size());
  Machine machine;
  if (Status status = bindArguments(machine, function, inputs); !status)
    return status;
  Block &block = function.getBody().front();
  if (Status status = machine.run(block); !status)
    return status;
  std::vector<Tensor> results;
  for (Value value : block.getTerminator()->getOperands())
    results.push_back(machine.take(value));
  return std::move(results);
}

Result<std::vector<Tensor>> interpretFunction(func::FuncOp function,
                                              ArrayRef<TensorRef> inputs) {
  Result<std::vector<Tensor>> results = runFunction(function, inputs);
  if (!results)
    return results.status().withContext("@" + function.getName().str());
  return results;
}

static Status runPlanKernel(plan::KernelOp kernel,
                            ArrayRef<TensorRef> tensors) {
  size_t numIns = kernel.getNumArguments();
  if (tensors.size() != numIns + kernel.getNumResults())
    return countMismatch(numIns + kernel.getNumResults(), tensors.size());
  Machine machine;
  if (Status status =
          bindArguments(machine, kernel, tensors.take_front(numIns));
      !status)
    return status;
  Block &block = kernel.getBody().front();
  if (Status status = machine.run(block); !status)
    return status;
  for (auto [i, value, out] : llvm::enumerate(
           block.getTerminator()->getOperands(), tensors.drop_front(numIns))) {
    TensorRef made = machine.at(value);
    if (made.dtype != out.dtype || made.shape != out.shape)
      return invalidArgument("result " + std::to_string(i) + " is " +
                             describe(made) + ", its buffer " + describe(out));
    if (int64_t bytes = made.numElements() * dtypeBits(made.dtype) / 8)
      memcpy(out.data, made.data, bytes);
  }
  return Status::ok();
}

static Status runTileKernel(tile::KernelOp kernel, ArrayRef<TensorRef> tensors,
                            int64_t tokens) {
  if (kernel.getFirstColumn())
    return invalidArgument(
        "it computes some columns at a time, which the interpreter does not "
        "support; compile by moe-compile with "
        "--disable=split-columns");
  size_t numTensors = kernel.getNumArguments() - 1;
  if (tensors.size() != numTensors)
    return countMismatch(numTensors, tensors.size());
  Machine machine;
  if (Status status = bindArguments(machine, kernel, tensors); !status)
    return status;
  machine.setTokens(kernel.getTokens(), tokens);
  return machine.run(kernel.getBody().front());
}

Status interpretKernel(FunctionOpInterface kernel, ArrayRef<TensorRef> tensors,
                       int64_t tokens) {
  std::string name = "@" + kernel.getName().str();
  if (Status status = checkBody(kernel); !status)
    return status.withContext(name);
  Operation *op = kernel;
  if (auto planKernel = dyn_cast<plan::KernelOp>(op))
    return runPlanKernel(planKernel, tensors).withContext(name);
  if (auto tileKernel = dyn_cast<tile::KernelOp>(op))
    return runTileKernel(tileKernel, tensors, tokens).withContext(name);
  return invalidArgument(name +
                         ": the interpreter runs plan.kernel and "
                         "tile.kernel, not '" +
                         op->getName().getStringRef().str() + "'");
}

} // namespace moec::interpreter
