//===- RunLevel.cpp - executes a layer at one level of IR -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunLevel.h"

#include "../Progress.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Interpreter/Interpreter.h"
#include "moec/Interpreter/InterpreterDevice.h"
#include "moert/HostDevice.h"
#include "llvm/ADT/STLExtras.h"

#include <chrono>
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

double getSeconds() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

LogicalResult report(const Status &status) {
  if (status)
    return success();
  llvm::errs() << "moe-run: error: " << status.message() << "\n";
  return failure();
}

HostTensor &getOutput(std::vector<HostTensor> &tensors) {
  return *llvm::find_if(tensors, [](const HostTensor &tensor) {
    return tensor.role == moert::TensorRole::Output;
  });
}

HostTensor copyTensor(std::string name, const moert::TensorView &view) {
  HostTensor copy;
  copy.name = std::move(name);
  copy.dtype = view.dtype;
  copy.shape = view.shape;
  if (copy.allocate() && copy.getNumBytes() > 0)
    std::memcpy(copy.data(), view.data, copy.getNumBytes());
  return copy;
}

/// Names of the workspace tensors that a check looks at.
constexpr llvm::StringLiteral kDetailNames[] = {"topk_ids", "topk_weights",
                                                "expert_offsets"};

void addExpertCounts(std::vector<HostTensor> &details) {
  auto offsets = llvm::find_if(details, [](const HostTensor &tensor) {
    return tensor.name == "expert_offsets";
  });
  if (offsets == details.end() || offsets->dtype != moert::DType::I32 ||
      offsets->shape.size() != 1 || offsets->shape[0] < 1)
    return;
  HostTensor counts;
  counts.name = "expert_counts";
  counts.dtype = moert::DType::I32;
  counts.shape = {offsets->shape[0] - 1};
  if (!counts.allocate())
    return;
  auto *from = reinterpret_cast<const int32_t *>(offsets->data());
  for (int64_t e = 0; e < counts.shape[0]; ++e)
    reinterpret_cast<int32_t *>(counts.data())[e] = from[e + 1] - from[e];
  details.push_back(std::move(counts));
}

/// One plan on one device: binds the tensors and runs.
class PlanRun {
public:
  PlanRun(const moert::Plan &plan, moert::Device &device,
          const moert::ModuleImage &image, std::vector<HostTensor> &tensors,
          const RunOptions &options)
      : plan(plan), device(device), image(image), tensors(tensors),
        options(options) {}

  Status run(RunResult &result) {
    if (Status status = start(/*keepAll=*/false); !status)
      return status;
    Result<moert::PrepareReport> prepared = executor->prepareWeights();
    if (!prepared)
      return prepared.status();
    result.prepare = *prepared;
    Result<int64_t> bytes = executor->workspaceBytes(options.tokens);
    if (!bytes)
      return bytes.status();
    result.workspaceBytes = *bytes;
    if (Status status = runOnce(); !status)
      return status;
    result.output = copyTensor("output", getOutput(tensors).getView());
    for (int64_t i = 0; i < options.repeat; ++i) {
      double begin = getSeconds();
      if (Status status = runOnce(); !status)
        return status;
      result.seconds.push_back(getSeconds() - begin);
    }
    llvm::sort(result.seconds);
    return options.careful ? readDetails(result) : Status::ok();
  }

private:
  Status start(bool keepAll) {
    moert::ExecutorOptions executorOptions;
    executorOptions.keepAll = keepAll;
    executorOptions.poison = options.careful;
    Result<std::unique_ptr<moert::Executor>> made =
        moert::Executor::create(plan, device, image, executorOptions);
    if (!made)
      return made.status();
    executor = std::move(*made);
    for (const HostTensor &tensor : tensors)
      if (Status status = executor->bind(tensor.name, tensor.getView());
          !status)
        return status;
    return Status::ok();
  }

  Status runOnce() {
    if (Status status = executor->run(options.tokens); !status)
      return status;
    return executor->synchronize();
  }

  /// Runs with a slot per buffer. Equal outputs show that no two buffers that
  /// live at the same time share a slot in the plan.
  Status readDetails(RunResult &result) {
    if (Status status = start(/*keepAll=*/true); !status)
      return status;
    Result<moert::PrepareReport> prepared = executor->prepareWeights();
    if (!prepared)
      return prepared.status();
    if (Status status = runOnce(); !status)
      return status;
    const HostTensor &output = getOutput(tensors);
    if (output.getNumBytes() > 0 &&
        std::memcmp(output.data(), result.output.data(),
                    output.getNumBytes()) != 0)
      return moert::internalError(
          "the output depends on which buffers share a workspace slot; "
          "'plan-assign-slots' has put buffers together that live at the same "
          "time");
    for (llvm::StringRef name : kDetailNames)
      if (plan.findTensor(name.str()) >= 0)
        if (Result<moert::TensorView> view = executor->view(name.str()))
          result.details.push_back(copyTensor(name.str(), *view));
    addExpertCounts(result.details);
    return Status::ok();
  }

  const moert::Plan &plan;
  moert::Device &device;
  const moert::ModuleImage &image;
  std::vector<HostTensor> &tensors;
  const RunOptions &options;
  std::unique_ptr<moert::Executor> executor;
};

FailureOr<RunResult> runCompiled(ModuleOp module,
                                 std::vector<HostTensor> &tensors,
                                 const RunOptions &options) {
  RunResult result;
  double begin = getSeconds();
  FailureOr<CompiledLayer> layer = compileForHost(module, options.compile);
  if (failed(layer))
    return failure();
  result.compileSeconds = getSeconds() - begin;
  Result<std::unique_ptr<moert::Device>> device =
      moert::createHostDevice(options.threads);
  if (!device) {
    (void)report(device.status());
    return failure();
  }
  PlanRun run(layer->plan, **device, layer->image, tensors, options);
  if (failed(report(run.run(result))))
    return failure();
  return result;
}

FailureOr<RunResult> runPlan(ModuleOp module, Level level,
                             std::vector<HostTensor> &tensors,
                             const RunOptions &options) {
  RunResult result;
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
  PlanRun run(*plan, **device, moert::ModuleImage(), tensors, options);
  if (failed(report(run.run(result))))
    return failure();
  return result;
}

/// The function of `module` that computes the layer: the only one with ops of
/// the moe dialect, as makePlan() has seen.
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

/// Makes the function return what a check looks at beside the output; returns
/// the names of all results.
SmallVector<std::string> returnDetails(func::FuncOp function) {
  Operation *exit = function.getBody().back().getTerminator();
  SmallVector<std::string> names(exit->getNumOperands(), "output");
  SmallVector<Value> values(exit->getOperands());
  function.walk([&](Operation *op) {
    auto given = op->getAttrOfType<ArrayAttr>("moe.name");
    if (!given || given.size() != op->getNumResults())
      return;
    for (auto [attr, result] : llvm::zip(given, op->getResults())) {
      auto name = dyn_cast<StringAttr>(attr);
      if (!name || !llvm::is_contained(kDetailNames, name.getValue()) ||
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
    return module.emitError("is below level moe; run it with --level=plan, "
                            "tile or llvm");
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
  // The run that follows prints and dumps.
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
  Progress progress("level " + stringify(level).str() +
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
