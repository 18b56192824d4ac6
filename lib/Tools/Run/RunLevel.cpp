//===- RunLevel.cpp - executes a layer at a level of IR ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunLevel.h"

#include "../Progress.h"
#include "PlanRun.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Interpreter/Interpreter.h"
#include "moec/Interpreter/InterpreterDevice.h"
#include "moec/Package/BuildPackage.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace mlir;
using namespace moec;
using moert::Result;
using moert::Status;

llvm::StringRef moec::stringify(ExecutedLevel level) {
  constexpr llvm::StringLiteral names[] = {"moe", "plan", "tile", "llvm"};
  return names[static_cast<size_t>(level)];
}

namespace {

LogicalResult report(const Status &status) {
  if (status)
    return success();
  llvm::errs() << "moe-run: error: " << status.message() << "\n";
  return failure();
}

Status checkSameBits(const HostTensor &first, const HostTensor &other) {
  if (first.getNumBytes() == other.getNumBytes() &&
      (first.getNumBytes() == 0 ||
       std::memcmp(first.data(), other.data(), first.getNumBytes()) == 0))
    return Status::ok();
  return moert::internalError(
      "the output's bits differ from those on the first device: they depend on "
      "the order of threads");
}

FailureOr<RunResult> runImage(const moert::Plan &plan, moert::Device &device,
                              const moert::ModuleImage &image,
                              std::vector<HostTensor> &tensors,
                              const RunOptions &options,
                              RunResult result = {}) {
  PlanRun run(plan, device, image, tensors, options);
  Status status = run.run(result);
  if (failed(report(
          options.others.empty() ? status : status.withContext(device.name()))))
    return failure();
  RunOptions once = options;
  once.repeat = 0;
  once.careful = once.graph = false;
  for (const std::unique_ptr<moert::Device> &other : options.others) {
    RunResult otherResult;
    PlanRun otherRun(plan, *other, image, tensors, once);
    status = otherRun.run(otherResult);
    if (status)
      status = checkSameBits(result.output, otherResult.output);
    if (failed(report(status.withContext(other->name()))))
      return failure();
  }
  return result;
}

FailureOr<RunResult> runOnGpu(ModuleOp module, std::vector<HostTensor> &tensors,
                              const RunOptions &options) {
  RunResult result;
  double begin = getSeconds();
  std::vector<std::string> architectures;
  if (options.device->takesMachineCode())
    architectures =
        chooseArchitectures(options.compile, options.device->architecture());
  FailureOr<moert::Package> package = buildPackage(
      module, /*spec=*/std::nullopt, options.compile, architectures);
  if (failed(package))
    return failure();
  result.compileSeconds = getSeconds() - begin;
  Result<moert::PackageChoice> choice =
      moert::chooseImage(*package, options.device->architecture(),
                         options.device->takesMachineCode());
  if (failed(report(choice.status())))
    return failure();
  const moert::PackageProgram &program = package->programs[choice->program];
  return runImage(program.plan, *options.device,
                  program.images[choice->image].load(), tensors, options,
                  std::move(result));
}

FailureOr<RunResult> runCompiled(ModuleOp module,
                                 std::vector<HostTensor> &tensors,
                                 const RunOptions &options) {
  if (options.isOnGpu())
    return runOnGpu(module, tensors, options);
  RunResult result;
  double begin = getSeconds();
  FailureOr<CompiledLayer> layer = compileForHost(module, options.compile);
  if (failed(layer))
    return failure();
  result.compileSeconds = getSeconds() - begin;
  return runImage(layer->plan, *options.device, layer->image, tensors, options,
                  std::move(result));
}

FailureOr<RunResult> runPlan(ModuleOp module, Level level,
                             std::vector<HostTensor> &tensors,
                             const RunOptions &options) {
  if (failed(lowerToLevel(module, level, options.compile)))
    return failure();
  FailureOr<moert::Plan> plan = translatePlan(module, "cpu");
  if (failed(plan))
    return failure();
  Result<std::unique_ptr<moert::Device>> device =
      interpreter::createInterpreterDevice(module);
  if (!device) {
    (void)report(device.status());
    return failure();
  }
  RunOptions interpreted = options;
  interpreted.device = device->get();
  interpreted.others = {};
  interpreted.graph = false;
  return runImage(*plan, **device, moert::ModuleImage(), tensors, interpreted);
}

/// The function of `module` that computes the layer: the only one with ops of
/// the moe dialect, as makePlan() has verified.
func::FuncOp findLayer(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() &&
        function
            .walk([](Operation *op) {
              return isa_and_nonnull<moe::MoeDialect>(op->getDialect())
                         ? WalkResult::interrupt()
                         : WalkResult::advance();
            })
            .wasInterrupted())
      return function;
  return nullptr;
}

/// Makes the function also return the tensors that a check inspects; returns
/// the names of all results.
SmallVector<std::string> returnDetails(func::FuncOp function) {
  Operation *exit = function.getBody().back().getTerminator();
  SmallVector<std::string> names(exit->getNumOperands(), "output");
  for (auto [index, name] : llvm::enumerate(names))
    if (auto given = function.getResultAttrOfType<StringAttr>(index, kNameAttr);
        given && index > 0)
      name = given.str();
  SmallVector<Value> values(exit->getOperands());
  function.walk([&](Operation *op) {
    auto given = op->getAttrOfType<ArrayAttr>("moe.name");
    if (!given || given.size() != op->getNumResults())
      return;
    for (auto [attr, result] : llvm::zip(given, op->getResults())) {
      auto name = dyn_cast<StringAttr>(attr);
      if (!name || !llvm::is_contained(getDetailNames(), name.getValue()) ||
          llvm::is_contained(names, name.getValue()))
        continue;
      names.push_back(name.str());
      values.push_back(result);
    }
  });
  exit->setOperands(values);
  function.setType(FunctionType::get(function.getContext(),
                                     function.getArgumentTypes(),
                                     ValueRange(values).getTypes()));
  return names;
}

FailureOr<RunResult> runFunction(ModuleOp module,
                                 std::vector<HostTensor> &tensors,
                                 const RunOptions &options) {
  func::FuncOp function = findLayer(module);
  if (!function)
    return module.emitError(
        "is below level moe; run it with --level=plan, tile or llvm");
  if (failed(decomposeLayers(module, options.compile)))
    return failure();
  SmallVector<std::string> names = returnDetails(function);
  SmallVector<interpreter::TensorRef> inputs;
  for (const HostTensor &tensor : tensors)
    if (tensor.role != moert::TensorRole::Output)
      inputs.push_back(
          {tensor.data(), tensor.dtype,
           SmallVector<int64_t, 4>(tensor.shape.begin(), tensor.shape.end())});
  RunResult result;
  for (int64_t i = 0; i <= options.repeat; ++i) {
    double begin = getSeconds();
    Result<std::vector<interpreter::Tensor>> outputs =
        interpreter::interpretFunction(function, inputs);
    if (failed(report(outputs.status())))
      return failure();
    if (i > 0)
      result.seconds.push_back(getSeconds() - begin);
    result.details.clear();
    for (auto [name, output] : llvm::zip(names, *outputs)) {
      interpreter::TensorRef ref = output.ref();
      HostTensor copy = copyTensor(
          name,
          {ref.data, ref.dtype, {ref.shape.begin(), ref.shape.end()}, {}});
      if (name == "output")
        result.output = std::move(copy);
      else
        result.details.push_back(std::move(copy));
    }
  }
  llvm::sort(result.seconds);
  addExpertCounts(result.details);
  return result;
}

} // namespace

FailureOr<moert::Plan> moec::makePlan(ModuleOp module,
                                      const CompileOptions &options) {
  OwningOpRef<ModuleOp> copy = module.clone();
  FailureOr<Level> level = detectLevel(*copy);
  if (failed(level))
    return failure();
  // The run that follows prints and dumps, so this one does not.
  CompileOptions quiet = options;
  quiet.printIRAfterAll = false;
  quiet.dumpDir.clear();
  if (*level == Level::Moe && failed(lowerToLevel(*copy, Level::Plan, quiet)))
    return failure();
  return translatePlan(*copy, "cpu");
}

FailureOr<RunResult> moec::runLevel(ModuleOp module, ExecutedLevel level,
                                    std::vector<HostTensor> &tensors,
                                    const RunOptions &options) {
  OwningOpRef<ModuleOp> copy = module.clone();
  Progress progress("moe-run",
                    "level " + stringify(level).str() +
                        (level == ExecutedLevel::LLVM ? " is compiled and run"
                                                      : " is interpreted"));
  switch (level) {
  case ExecutedLevel::Moe:
    return runFunction(*copy, tensors, options);
  case ExecutedLevel::Plan:
    return runPlan(*copy, Level::Plan, tensors, options);
  case ExecutedLevel::Tile:
    return runPlan(*copy, Level::Tile, tensors, options);
  case ExecutedLevel::LLVM:
    return runCompiled(*copy, tensors, options);
  }
  llvm_unreachable("every level is listed");
}

FailureOr<RunResult> moec::runPackage(const moert::Package &package,
                                      const moert::PackageChoice &choice,
                                      std::vector<HostTensor> &tensors,
                                      const RunOptions &options) {
  const moert::PackageProgram &program = package.programs[choice.program];
  moert::ModuleImage image = program.images[choice.image].load();
  Progress progress("moe-run", "the package is loaded and run");
  return runImage(program.plan, *options.device, image, tensors, options);
}
