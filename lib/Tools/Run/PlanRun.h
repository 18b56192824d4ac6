//===- PlanRun.h - runs a plan on a device ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_PLANRUN_H
#define MOEC_LIB_TOOLS_RUN_PLANRUN_H

#include "RunLevel.h"

namespace moec {

/// The monotonic clock in seconds.
double getSeconds();

/// Copies a tensor in host memory.
HostTensor copyTensor(std::string name, const moert::TensorView &view);

/// Names of the intermediate tensors that a check inspects.
llvm::ArrayRef<llvm::StringLiteral> getDetailNames();

/// Adds `expert_counts` if there is `expert_offsets`.
void addExpertCounts(std::vector<HostTensor> &details);

/// Runs a plan: binds the tensors, copied to a device that has memory of its
/// own, runs as the options say, and copies the output back.
class PlanRun {
public:
  PlanRun(const moert::Plan &plan, moert::Device &device,
          const moert::ModuleImage &image, std::vector<HostTensor> &tensors,
          const RunOptions &options)
      : plan(plan), device(device), image(image), tensors(tensors),
        options(options) {}

  moert::Status run(RunResult &result);

private:
  HostTensor &getOutput();
  moert::Status place();
  moert::Status place(const HostTensor &tensor, moert::TensorView &view);
  moert::Status start(bool keepAll);
  /// Whether the tensor is bound; weights are not if they come from a prepared
  /// file.
  bool isBound(const HostTensor &tensor) const {
    return tensor.role != moert::TensorRole::Weight || options.prepared.empty();
  }
  moert::Status prepare(RunResult &result);
  moert::Status writePrepared();
  moert::Status capture();
  moert::Status replay();
  moert::Status runOnce();
  moert::Status launch();
  moert::Status time(RunResult &result);
  moert::Status trace(RunResult &result);
  moert::Status compareRuns(const RunResult &result);
  moert::Status copyInputs(const std::vector<HostTensor> &from);
  moert::Status readOutput();
  moert::Status checkOutput(const RunResult &result, llvm::StringRef otherwise);
  moert::Status readDetails(RunResult &result);

  const moert::Plan &plan;
  moert::Device &device;
  const moert::ModuleImage &image;
  std::vector<HostTensor> &tensors;
  const RunOptions &options;
  /// Device views, per tensor.
  std::vector<moert::TensorView> views;
  std::vector<std::unique_ptr<moert::Buffer>> buffers;
  /// Copies of weights that are bound with gaps between rows.
  std::vector<HostTensor> spread;
  std::unique_ptr<moert::Stream> stream;
  std::unique_ptr<moert::Executor> executor;
  std::unique_ptr<moert::Graph> graph;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_PLANRUN_H
