//===- LayerRun.h - runs a layer on the device ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_RUN_LAYERRUN_H
#define MOEC_VERIFY_GPUTEST_RUN_LAYERRUN_H

#include "../Inputs/Inputs.h"
#include "CompiledLayers.h"
#include "GuardedBuffer.h"
#include "moec/Generator/GeneratorKernel.h"
#include "moert/Executor.h"

#include <map>

namespace moec::gputest {

using Bytes = std::vector<uint8_t>;

/// A compiled layer, loaded twice: unchanged, and with a workspace slot per
/// buffer for inspection. Loading may take long, but needs almost no device
/// memory.
struct LoadedLayer {
  std::unique_ptr<moert::Executor> executor, inspected;

  static moert::Result<LoadedLayer> load(moert::Device &device,
                                         const LoadableLayer &layer);
};

/// A loaded layer with its tensors on a device, between guards. All memory that
/// a run writes is poisoned before the run.
class LayerRun {
public:
  /// Makes inputs, output and workspace between guards, and the executor;
  /// weights are generated on the device. `pitch` is the number of padding
  /// elements after each row of the generated weights.
  static moert::Result<std::unique_ptr<LayerRun>>
  create(moert::Device &device, DeviceGenerator &generator, LoadedLayer layer,
         const Inputs &inputs, int64_t pitch);

  /// Runs and waits.
  moert::Status run();
  /// The output of the latest run, and its recorded outputs in sequence.
  moert::Result<Bytes> readOutput();
  moert::Result<Bytes> readRecords();
  /// Fails if a guard was overwritten.
  moert::Status checkGuards() const;
  /// Overwrites the guard after the workspace.
  moert::Status spoilGuard();

  /// Copies an input again from `tensor`, which must have the same shape.
  moert::Status update(const HostTensor &tensor);

  /// Only on devices with graphs and a clock.
  moert::Status capture();
  moert::Status replay();
  /// Seconds of `count` replays, ascending.
  moert::Result<std::vector<double>> time(int64_t count);

  /// Runs once more with a workspace slot per buffer; `inspect` copies buffers
  /// of this run.
  moert::Status runInspected();
  /// A buffer of the plan after runInspected(); empty if the plan has none of
  /// that name.
  moert::Result<std::optional<HostTensor>> inspect(const std::string &name);

private:
  LayerRun(moert::Device &device, DeviceGenerator &generator, LoadedLayer layer,
           const Inputs &inputs, int64_t pitch)
      : device(device), generator(generator), layer(std::move(layer)),
        inputs(inputs), tokens(inputs.getNumTokens()), pitch(pitch) {}

  moert::Status place(const InputTensor &tensor);
  moert::Status fill(const InputTensor &tensor, const GuardedBuffer &buffer);
  moert::Status placeOutputs();
  moert::Status start(moert::Executor &executor);
  moert::Status poison();

  moert::Device &device;
  DeviceGenerator &generator;
  LoadedLayer layer;
  const Inputs &inputs;
  int64_t tokens, pitch;
  std::unique_ptr<moert::Stream> stream;
  /// Buffers of the inputs in order, the output, the recorded outputs, the
  /// workspace.
  std::vector<GuardedBuffer> buffers;
  std::map<std::string, moert::TensorView> views;
  size_t output = 0, workspace = 0;
  std::unique_ptr<moert::Graph> graph;
};

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_RUN_LAYERRUN_H
