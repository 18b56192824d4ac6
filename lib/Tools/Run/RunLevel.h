//===- RunLevel.h - executes a layer at one level of IR ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_RUNLEVEL_H
#define MOEC_LIB_TOOLS_RUN_RUNLEVEL_H

#include "HostTensor.h"
#include "moec/Compiler/Compiler.h"
#include "moert/Package.h"

namespace moec {

/// What is executed: IR through the interpreter, or compiled kernels.
enum class ExecutedLevel { Moe, Plan, Tile, LLVM };
llvm::StringRef stringify(ExecutedLevel level);

class RecordingCommunicator;

/// Times of a part of a run (PartTimes.h).
struct PartTimes {
  /// Of a rank.
  int64_t tokens = 0;
  std::string part;
  /// Ascending.
  std::vector<double> seconds;
};

/// Who moves rows between ranks.
enum class Exchange {
  /// NCCL between GPUs, else ranks copy what others have.
  Default,
  Nccl,
  /// Kernels of the layer, through the memory of other ranks.
  Peer,
  /// Rows go to their owners alone, by NCCL or between threads or processes.
  AllToAll
};

struct RunOptions {
  int64_t tokens = 0;
  /// Timed runs; the first, untimed one comes in addition.
  int64_t repeat = 0;
  /// What compiled kernels run on.
  moert::Device *device = nullptr;
  /// More of the same kind: each runs once and has to give the same output.
  llvm::ArrayRef<std::unique_ptr<moert::Device>> others;
  /// Replay a graph in timed runs; its output has to be that of the first run.
  bool graph = false;
  /// Run once more with a workspace slot for each buffer: the output has to be
  /// the same.
  bool careful = false;
  /// Fill workspace and output with NaN before each run.
  bool poison = false;
  CompileOptions compile;
  /// Of a layer of several ranks: how this one meets the others.
  std::shared_ptr<moert::Communicator> communicator;
  /// Tokens of a rank from which on a run is two micro-batches; 0 for never.
  int64_t microBatchesFrom = 0;
  /// Runs after the first, each of which has to give the bits of the first with
  /// its inputs; and inputs that take turns with those given, by name.
  int64_t comparedRuns = 0;
  /// One of those that is left out; -1 for none.
  int64_t skippedRun = -1;
  std::vector<const std::vector<HostTensor> *> otherInputs;
  /// Numbers of tokens, of a rank and at most `tokens`, that parts of runs are
  /// timed with. With several ranks `recorder` is the communicator.
  std::vector<int64_t> timesAt;
  std::shared_ptr<RecordingCommunicator> recorder;
  /// Run once more, and say when each step was under way.
  bool trace = false;
  /// A file that prepared weights are written to, and one that they come from
  /// in place of the tensors; of several ranks, those of one. Empty for none.
  std::string writePrepared, prepared;
  /// The identity of the layer in such files.
  std::string description;
  /// Which share of a rank's tokens has an expert on another one, on average.
  double rankShare = 1;

  /// Whether the device has memory of its own.
  bool isOnGpu() const { return !device->architecture().empty(); }
};

struct RunResult {
  HostTensor output;
  /// Routing as far as the layer has it: `topk_ids`, `topk_weights`,
  /// `expert_offsets`, `expert_counts`. Read from a run with options.careful.
  std::vector<HostTensor> details;
  double compileSeconds = 0;
  moert::PrepareReport prepare;
  int64_t workspaceBytes = 0;
  /// Ascending.
  std::vector<double> seconds;
  std::vector<PartTimes> parts;
  /// Of each rank, where RunOptions::trace says so.
  std::vector<std::vector<moert::TracedStep>> traces;
};

/// The plan of a layer, for its tensors; compiles as far as level plan.
mlir::FailureOr<moert::Plan> makePlan(mlir::ModuleOp module,
                                      const CompileOptions &options);

/// Executes `module`, which is left as it is, on `tensors` (inputs, weights and
/// the output, whose memory is overwritten). Prints what is wrong.
mlir::FailureOr<RunResult> runLevel(mlir::ModuleOp module, ExecutedLevel level,
                                    std::vector<HostTensor> &tensors,
                                    const RunOptions &options);

/// Executes one program of a package.
mlir::FailureOr<RunResult> runPackage(const moert::Package &package,
                                      const moert::PackageChoice &choice,
                                      std::vector<HostTensor> &tensors,
                                      const RunOptions &options);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RUNLEVEL_H
