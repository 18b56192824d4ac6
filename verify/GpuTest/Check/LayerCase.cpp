//===- LayerCase.cpp - runs a case of a layer -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerCase.h"

#include "CheckLayer.h"
#include "Floor.h"
#include "Invariants.h"

#include <cstring>

using namespace moec;
using namespace moec::gputest;
using moert::Result;

namespace {

Result<LayerSpec> importSpec(const LayerCase &layerCase) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  SpecOverrides overrides;
  if (layerCase.maxTokens > 0)
    overrides.maxTokens = layerCase.maxTokens;
  llvm::FailureOr<LayerSpec> spec =
      importJson(SourceText(layerCase.origin, layerCase.description), overrides,
                 diagnostics);
  if (failed(spec))
    return moert::invalidArgument(messages);
  return *spec;
}

class Runner {
public:
  Runner(SuiteContext &context, const LayerCase &layerCase, Outcome &outcome)
      : context(context), layerCase(layerCase), outcome(outcome) {}

  void run() {
    Result<LayerSpec> spec = importSpec(layerCase);
    if (!outcome.expect(spec.status()))
      return;
    CompiledLayers::Ptr layer = context.layers.get(*spec, layerCase.kernels);
    if (!outcome.expect(layer->status()))
      return;
    outcome.figures["compile_seconds"] = (**layer).compileSeconds;
    Result<Inputs> inputs = Inputs::create(layerCase, *spec);
    if (!outcome.expect(inputs.status()))
      return;
    {
      std::unique_lock<std::mutex> lock(context.deviceMutex, std::defer_lock);
      // Loading PTX takes the driver long, so it runs without the lock; loading
      // of other images would disturb the times of another case.
      if ((**layer).image.kind != moert::ModuleImage::Kind::Ptx)
        lock.lock();
      Result<LoadedLayer> loaded = LoadedLayer::load(context.device, **layer);
      if (!outcome.expect(loaded.status()))
        return;
      if (!lock.owns_lock())
        lock.lock();
      if (!runOnDevice(std::move(*loaded), *inputs))
        return;
    }
    if (context.plant == Plant::Output && result.output.getNumBytes() > 0)
      result.output.data()[result.output.getNumBytes() / 2 | 1] ^= 0x40;
    Load load =
        checkLayer(layerCase, *inputs, result, context.threads, outcome);
    if (outcome.figures.count("median_us"))
      compareWithFloor(*spec, load);
  }

private:
  bool runOnDevice(LoadedLayer layer, Inputs &inputs) {
    Result<std::unique_ptr<LayerRun>> made =
        LayerRun::create(context.device, context.generator, std::move(layer),
                         inputs, layerCase.pitch);
    if (!outcome.expect(made.status()))
      return false;
    LayerRun &run = **made;
    if (!outcome.expect(run.run()))
      return false;
    Result<Bytes> bytes = run.readOutput();
    if (!outcome.expect(bytes.status()))
      return false;
    if (context.plant == Plant::Canary && !outcome.expect(run.spoilGuard()))
      return false;
    unifyNaN(*bytes, inputs.getSpec().dtype);
    result.output.name = "output";
    result.output.dtype = reference::getRuntimeType(inputs.getSpec().dtype);
    result.output.shape = {layerCase.tokens, inputs.getSpec().getOutputWidth()};
    if (!outcome.expect(result.output.allocate()))
      return false;
    if (!bytes->empty())
      std::memcpy(result.output.data(), bytes->data(), bytes->size());

    Result<Bytes> records = run.readRecords();
    if (!outcome.expect(records.status()))
      return false;
    Invariants invariants(context, run, inputs, std::move(*bytes),
                          std::move(*records), outcome);
    invariants.checkRepeats(layerCase.repeats);
    invariants.checkValidCounts();
    if (layerCase.isolation)
      invariants.checkIsolation();
    if (layerCase.permutation)
      invariants.checkPermutation();
    if (layerCase.timed > 0 && context.isGpu)
      time(run);
    invariants.inspect(result, layerCase.sums > 0);
    return outcome.expect(run.checkGuards());
  }

  void time(LayerRun &run) {
    Result<std::vector<double>> seconds = run.time(layerCase.timed);
    if (!outcome.expect(seconds.status()))
      return;
    outcome.figures["median_us"] = (*seconds)[seconds->size() / 2] * 1e6;
    outcome.figures["best_us"] = seconds->front() * 1e6;
  }

  void compareWithFloor(const LayerSpec &spec, const Load &load) {
    Floor floor = getFloor(spec, layerCase.tokens, load);
    outcome.figures["tokens"] = static_cast<double>(layerCase.tokens);
    outcome.figures["active_experts"] = static_cast<double>(load.activeExperts);
    outcome.figures["floor_us"] = floor.getSeconds() * 1e6;
    outcome.figures["floor_bytes"] = floor.bytes;
    outcome.figures["floor_operations"] = floor.operations;
    outcome.figures["fraction_of_floor"] =
        floor.getSeconds() * 1e6 / outcome.figures["median_us"];
  }

  SuiteContext &context;
  const LayerCase &layerCase;
  Outcome &outcome;
  LayerResult result;
};

} // namespace

Outcome moec::gputest::runLayerCase(SuiteContext &context,
                                    const LayerCase &layerCase) {
  Outcome outcome;
  Runner(context, layerCase, outcome).run();
  return outcome;
}
