//===- LayerOnDevice.h - a compiled layer with its weights ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_LAYERONDEVICE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_LAYERONDEVICE_H

#include "../Rows/Rows.h"
#include "TimedDevice.h"
#include "moec/Generator/GeneratorKernel.h"
#include "moec/Import/LayerSpec.h"
#include "moec/Jit/Jit.h"
#include "moert/Executor.h"

#include <map>

namespace moec::bench {

/// State shared by all layers and rows.
struct Session {
  TimedDevice &device;
  DeviceGenerator &generator;
  JitOptions jit;
  /// The maximal token count that layers are compiled for.
  int64_t maxTokens = 1;
  /// The number of the reference's threads.
  int threads = 0;
  /// Whether the device has a clock and graphs.
  bool hasClock = false;
  /// Configs of --tuned, by layer.
  std::map<std::string, std::vector<std::string>> tuned = {};
  /// Layers are compiled with and without their router; a config for a kernel
  /// that only one of them has is ignored for the other.
  bool hasBothLayers = false;

  /// The configs of `tuned`, then those of the compiler's options: the last one
  /// for a kernel takes effect.
  std::vector<std::string> getConfigs(const BenchLayer &layer) const;
  void dropOthers(std::vector<std::string> &configs, bool withRouter) const;
};

struct ReadyLayer {
  LayerSpec spec;
  moert::Plan plan;
  moert::ModuleImage image;
  double seconds = 0;
  bool isFromCache = false;
};

/// Compiles a layer; `configs` follow those of the session.
moert::Result<ReadyLayer>
compileLayer(const Session &session, const BenchLayer &layer, bool withRouter,
             llvm::ArrayRef<std::string> configs = {});

/// A compiled layer, loaded, with weights generated on the device.
class LayerOnDevice {
public:
  static moert::Result<std::unique_ptr<LayerOnDevice>>
  create(Session &session, const BenchLayer &layer, ReadyLayer compiled);

  /// Another compilation of the layer of `other`, with the same weights in
  /// memory if no launch has overwritten them in place. `other` must outlive
  /// the result.
  static moert::Result<std::unique_ptr<LayerOnDevice>>
  createBeside(Session &session, const LayerOnDevice &other,
               ReadyLayer compiled);

  /// Replaces this compilation by another one of the same layer; keeps the
  /// weights.
  moert::Status load(Session &session, ReadyLayer compiled);

  const BenchLayer &getLayer() const { return layer; }
  const LayerSpec &getSpec() const { return spec; }
  moert::Executor &getExecutor() { return *executor; }
  const moert::Plan &getPlan() const { return executor->plan(); }
  /// The random tensors that weights were generated from.
  const std::map<std::string, RandomTensor> &getWeights() const {
    return weights;
  }
  /// Weights that are not random: column orders.
  const std::map<std::string, std::vector<int32_t>> &getTables() const {
    return tables;
  }
  const moert::PrepareReport &getPrepareReport() const { return prepared; }
  /// Seconds of the compilation, or of the lookup in its cache.
  double getCompileSeconds() const { return compileSeconds; }
  bool isFromCache() const { return fromCache; }
  double getFillSeconds() const { return fillSeconds; }

private:
  LayerOnDevice(const BenchLayer &layer, LayerSpec spec)
      : layer(layer), spec(std::move(spec)) {}

  moert::Status allocate(Session &session);
  moert::Status fill(Session &session);

  const BenchLayer &layer;
  LayerSpec spec;
  std::vector<std::unique_ptr<moert::Buffer>> buffers;
  std::map<std::string, moert::TensorView> views;
  std::unique_ptr<moert::Executor> executor;
  std::map<std::string, RandomTensor> weights;
  std::map<std::string, std::vector<int32_t>> tables;
  moert::PrepareReport prepared;
  bool isFilled = false, fromCache = false;
  double compileSeconds = 0;
  double fillSeconds = 0;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_LAYERONDEVICE_H
