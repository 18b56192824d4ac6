//===- Expect.cpp - expected times of a layer as data ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Expect.h"

#include "../../runtime/src/plan/ReadTensors.h"
#include "DescribeLayer.h"
#include "ExpectedRun.h"
#include "Host/HostRates.h"
#include "moec/Compiler/PlanData.h"
#include "moert/Workspace.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace moec;

static constexpr int64_t kUsualTokenCounts[] = {1, 8, 64, 1024, 4096};

llvm::ArrayRef<int64_t> moec::getUsualTokenCounts() {
  return kUsualTokenCounts;
}

namespace {

class Expectation {
public:
  Expectation(ModuleOp module, const std::optional<LayerSpec> &spec,
              const moert::Plan &plan, const Target &target,
              llvm::json::OStream &json)
      : spec(spec), plan(plan), target(target), device(getDeviceRates(target)),
        topK(findTopK(module)), json(json) {
    plan::ProgramOp program = *module.getOps<plan::ProgramOp>().begin();
    llvm::append_range(variants, program.getBody().getOps<plan::VariantOp>());
  }

  void print(ArrayRef<int64_t> tokens) const {
    json.object([&] {
      printLayer();
      printGpu();
      json.attributeArray("times", [&] {
        for (int64_t count : tokens)
          printRun(count);
      });
    });
  }

private:
  void printLayer() const {
    json.attribute("layer", spec ? spec->name : "layer");
    json.attribute("target", target.name);
    json.attribute("ranks", plan.mesh.numRanks());
    json.attribute("max_tokens", plan.maxTokens);
    json.attribute("weight_bytes", getBytes(moert::TensorRole::Weight));
    json.attribute("prepared_bytes", getBytes(moert::TensorRole::Prepared));
    json.attribute("resident_bytes", getResidentBytes());
  }

  /// Null for a CPU, and for a GPU whose rates are unknown.
  void printGpu() const {
    const PartFacts *part = target.part;
    json.attribute("gpu", part ? llvm::json::Value(part->name) : nullptr);
    json.attribute("gpu_memory_bytes",
                   part ? llvm::json::Value(part->memoryBytes) : nullptr);
    json.attribute("rates",
                   device ? llvm::json::Value(device->describe()) : nullptr);
  }

  void printRun(int64_t tokens) const {
    ExpectedRun run = expectRun(variants[size_t(plan.findVariant(tokens))],
                                tokens, topK, target, device);
    json.object([&] {
      json.attribute("tokens", tokens);
      printTime(run.us, run.floorUs, run.bound);
      json.attribute("exchange_us",
                     run.us ? llvm::json::Value(run.exchangeUs) : nullptr);
      printWork(run.work);
      json.attribute("launches", int64_t(run.numLaunches));
      moert::Result<int64_t> bytes = moert::workspaceBytes(plan, tokens);
      json.attribute("workspace_bytes",
                     bytes ? llvm::json::Value(*bytes) : nullptr);
      json.attributeArray("steps", [&] {
        for (const ExpectedStep &step : run.steps)
          printStep(step);
      });
    });
  }

  void printStep(const ExpectedStep &step) const {
    json.object([&] {
      json.attribute("name", step.name);
      printTime(step.time ? std::optional(step.time->us) : std::nullopt,
                step.time ? step.time->floorUs : 0, step.bound);
      printWork(step.work);
    });
  }

  void printTime(std::optional<double> us, double floorUs,
                 StringRef bound) const {
    json.attribute("us", us ? llvm::json::Value(*us) : nullptr);
    json.attribute("floor_us", us ? llvm::json::Value(floorUs) : nullptr);
    json.attribute("bound", us ? llvm::json::Value(bound) : nullptr);
  }

  void printWork(const Work &work) const {
    json.attribute("bytes", work.bytes);
    json.attribute("operations", work.operations);
  }

  /// Bytes of all tensors of a role on one rank, without those made in the
  /// memory of a weight.
  int64_t getBytes(moert::TensorRole role) const {
    int64_t sum = 0;
    for (const moert::TensorDecl &tensor : plan.tensors) {
      moert::Result<int64_t> bytes = moert::tensorBytes(tensor).evaluate(0);
      if (tensor.role == role && tensor.inPlaceOf < 0 && bytes)
        sum += *bytes;
    }
    return sum;
  }

  /// Bytes of weights and prepared tensors that runs read: what a layer holds
  /// once the other weights are released.
  int64_t getResidentBytes() const {
    int64_t sum = 0;
    std::vector<bool> isRead = moert::findMemoryReadByRuns(plan);
    for (auto [tensor, isRead] : llvm::zip(plan.tensors, isRead)) {
      bool isHeld = tensor.role == moert::TensorRole::Weight ||
                    tensor.role == moert::TensorRole::Prepared;
      moert::Result<int64_t> bytes = moert::tensorBytes(tensor).evaluate(0);
      if (isHeld && isRead && tensor.inPlaceOf < 0 && bytes)
        sum += *bytes;
    }
    return sum;
  }

  const std::optional<LayerSpec> &spec;
  const moert::Plan &plan;
  const Target &target;
  /// Null if no rates of the target are known.
  const DeviceRates *device;
  int64_t topK;
  SmallVector<plan::VariantOp> variants;
  llvm::json::OStream &json;
};

} // namespace

/// The counts to print; an error for one that the layer does not take.
static FailureOr<SmallVector<int64_t>> chooseTokens(ArrayRef<int64_t> asked,
                                                    const moert::Plan &plan,
                                                    ModuleOp module) {
  int64_t step = plan.mesh.tokenRanks();
  SmallVector<int64_t> tokens(asked);
  for (int64_t count : asked)
    if (count < 1 || count > plan.maxTokens || count % step != 0)
      return module.emitError()
             << "tokens: " << count << " found; from " << step << " to "
             << plan.maxTokens << " are accepted"
             << (step > 1 ? ", multiples of " + std::to_string(step) +
                                ", since they are those of all ranks"
                          : std::string())
             << (count > plan.maxTokens ? "; for more, give max_tokens" : "");
  if (asked.empty())
    for (int64_t count : kUsualTokenCounts)
      if (llvm::alignTo(count, step) <= uint64_t(plan.maxTokens))
        tokens.push_back(int64_t(llvm::alignTo(count, step)));
  if (tokens.empty())
    tokens.push_back(plan.maxTokens);
  return tokens;
}

FailureOr<std::string> moec::expectLayer(const Source &source,
                                         const CompileOptions &options,
                                         ArrayRef<int64_t> tokens) {
  ModuleOp module = *source.module;
  if (failed(lowerToLevel(module, Level::Tile, options)))
    return failure();
  Target target = getExpectedTarget(options, module);
  FailureOr<moert::Plan> plan = translatePlan(module, target.name);
  if (failed(plan))
    return failure();
  FailureOr<SmallVector<int64_t>> counts = chooseTokens(tokens, *plan, module);
  if (failed(counts))
    return failure();
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os, /*IndentSize=*/2);
  Expectation(module, source.spec, *plan, target, json).print(*counts);
  return text + "\n";
}
