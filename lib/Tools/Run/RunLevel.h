//===- RunLevel.h - executes a layer at a level of IR -----------*- C++ -*-===//
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

/// The level that is executed: IR through the interpreter, or compiled kernels
/// (`LLVM`).
enum class ExecutedLevel { Moe, Plan, Tile, LLVM };
llvm::StringRef stringify(ExecutedLevel level);

class RecordingCommunicator;

/// Times of a part of a run (PartTimes.h).
struct PartTimes {
  /// Per rank.
  int64_t tokens = 0;
  std::string part;
  /// Ascending.
  std::vector<double> seconds;
};

enum class Exchange {
  /// NCCL between GPUs; otherwise ranks copy from each other.
  Default,
  Nccl,
  /// Kernels of the layer, through the memory of other ranks.
  Peer,
  /// Rows go only to their destination ranks, by NCCL or between threads or
  /// processes.
  AllToAll
};

struct RunOptions {
  int64_t tokens = 0;
  /// The number of timed runs, after an untimed first one.
  int64_t repeat = 0;
  moert::Device *device = nullptr;
  /// More devices of the same kind: each runs once and must give the same
  /// output.
  llvm::ArrayRef<std::unique_ptr<moert::Device>> others;
  /// Replay a graph in timed runs; its output must be that of the first run.
  bool graph = false;
  /// Run once more with a workspace slot per buffer: the output must be the
  /// same.
  bool careful = false;
  /// Fill workspace and output with NaN before each run.
  bool poison = false;
  CompileOptions compile;
  /// Connects the ranks of a layer of several ranks.
  std::shared_ptr<moert::Communicator> communicator;
  /// Tokens per rank from which a run is two micro-batches; 0 for never.
  int64_t microBatchesFrom = 0;
  /// Further runs, each of which must be bitwise equal to the first with its
  /// inputs. `otherInputs` alternate with the given inputs, by name.
  int64_t comparedRuns = 0;
  /// The index of a compared run to skip; -1 for none.
  int64_t skippedRun = -1;
  std::vector<const std::vector<HostTensor> *> otherInputs;
  /// Token counts per rank, at most `tokens`, at which the parts of runs are
  /// timed. With several ranks `recorder` is the communicator.
  std::vector<int64_t> timesAt;
  std::shared_ptr<RecordingCommunicator> recorder;
  /// Run once more and record the times of each step.
  bool trace = false;
  /// The file to write prepared weights to, and one to read them from in place
  /// of the tensors; with several ranks, those of one. Empty for none.
  std::string writePrepared, prepared;
  /// The identity of the layer in such files, and the decoder layer of a model
  /// that they are of, if one is named.
  std::string description;
  std::optional<int64_t> decoderLayer;
  /// The expected share of a rank's tokens that have an expert on another given
  /// rank.
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
  /// Per rank, if RunOptions::trace is set.
  std::vector<std::vector<moert::TracedStep>> traces;
};

/// The plan of a layer, for its tensors; compiles to level plan.
mlir::FailureOr<moert::Plan> makePlan(mlir::ModuleOp module,
                                      const CompileOptions &options);

/// Executes `module`, which stays unchanged, on `tensors` (inputs, weights and
/// the output, whose memory is overwritten). Prints errors.
mlir::FailureOr<RunResult> runLevel(mlir::ModuleOp module, ExecutedLevel level,
                                    std::vector<HostTensor> &tensors,
                                    const RunOptions &options);

mlir::FailureOr<RunResult> runPackage(const moert::Package &package,
                                      const moert::PackageChoice &choice,
                                      std::vector<HostTensor> &tensors,
                                      const RunOptions &options);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RUNLEVEL_H
