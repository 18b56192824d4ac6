//===- RankRun.h - runs all ranks of a layer --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_RANKRUN_H
#define MOEC_LIB_TOOLS_RUN_RANKRUN_H

#include "HostTensor.h"
#include "RankProcesses.h"
#include "RunLevel.h"
#include "moec/Import/LayerSpec.h"
#include "moert/Checkpoint.h"
#include "moert/PeerDevice.h"

namespace moec {

struct RankRunOptions {
  /// `tokens` is the token count of a rank.
  RunOptions run;
  uint64_t seed = 0;
  /// A file of the tensors of the layer on one rank, with the rows of all
  /// groups in sequence; empty to generate them.
  std::string inputs;
  /// A file of a call's inputs, with the rows of all groups in sequence; empty
  /// to use those of `inputs`.
  std::string hiddenStates;
  /// Also keep the weights of the layer on one rank, for check().
  bool checks = false;
  /// Valid tokens of each group of ranks; empty for all.
  std::vector<int64_t> validTokens;
  /// The number of inputs that `run.comparedRuns` alternates between.
  int64_t numInputs = 1;
  /// Seconds that a rank waits for the others in one call.
  double limitSeconds = 60;
  /// The device of compiled kernels, as `--device` names it: "cuda" is a GPU
  /// for each rank, with NCCL between them; "cuda:N" is one GPU for all ranks.
  std::string device = "host";
  Exchange exchange = Exchange::Default;
  /// For ranks that write to each other's memory (PeerOptions).
  int64_t leastCopiedBytes = moert::Communicator::kNeverCopied;
  /// For the all-to-all exchange (AllToAllOptions).
  int64_t allToAllFrom = 1;
  double allToAllCapacity = 0;
  int threads = 0;
  /// The processes of ranks, of which this process is one or the parent; null
  /// if ranks are threads.
  RankProcesses *processes = nullptr;
  /// Kernels for the device, if they are compiled already.
  const moert::PackageProgram *program = nullptr;
  const moert::PackageImage *image = nullptr;
};

/// A layer of several ranks, which are threads or processes. Tensors are made
/// for the layer on one rank with the tokens of all groups, then split.
class RankRun {
public:
  /// `module` holds the layer of `spec` and outlives this.
  static moert::Result<std::unique_ptr<RankRun>>
  create(const LayerSpec &spec, mlir::ModuleOp module,
         const RankRunOptions &options);

  /// Returns a result for each group of ranks, all of whose ranks must agree
  /// bitwise. Prints errors.
  mlir::FailureOr<std::vector<RunResult>> run(ExecutedLevel level);

  static HostTensor concatenate(const std::vector<RunResult> &results);

  /// Compares each group's result with the reference for its tokens.
  bool check(const std::vector<RunResult> &results);

private:
  RankRun(const LayerSpec &spec, mlir::ModuleOp module,
          const RankRunOptions &options)
      : spec(spec), module(module), options(options) {}

  bool usesNccl() const {
    return options.device == "cuda" && options.exchange != Exchange::Peer;
  }
  /// The rank of this process, if it is a rank's.
  std::optional<int64_t> getOwnRank() const {
    return options.processes ? options.processes->getRank() : std::nullopt;
  }
  moert::Status openDevices();
  struct Compiled;

  moert::Status makeTensors();
  /// Generates the tensors that no file provides.
  moert::Status generate(std::vector<HostTensor> &tensors, uint64_t seed) const;
  moert::Status makeOtherInputs(const moert::Plan &plan, int64_t tokens);
  /// Per group: the rows of a call's inputs.
  using Groups = std::vector<std::vector<HostTensor>>;
  moert::Result<Groups> splitGroups(const std::vector<HostTensor> &all) const;
  mlir::FailureOr<Compiled> compile(ExecutedLevel level);
  /// Reads or generates the weights of the layer on one rank.
  moert::Status makeWeights(const moert::Plan &plan);
  /// The tensors that a rank binds; its weights are read from the checkpoint,
  /// if there is one, or split from those of the layer on one rank.
  moert::Result<std::vector<HostTensor>>
  makeRankTensors(const moert::Plan &plan, int64_t rank);
  moert::Status fillRankWeights(std::vector<HostTensor> &tensors, int64_t rank);
  moert::Result<std::vector<std::vector<HostTensor>>>
  makeRankTensors(const moert::Plan &plan);
  class Connector;
  /// `tensors` are those that a rank binds; if null, they are made after the
  /// rank is connected.
  moert::Status runRank(Compiled &compiled, int64_t rank, Connector &connector,
                        std::vector<HostTensor> *tensors, RunResult &result);
  /// Checks that the layer supports the requested exchange.
  moert::Status checkExchange(const moert::Plan &plan) const;
  moert::Result<std::vector<RunResult>> runRanks(Compiled &compiled);
  moert::Status runOwnRank(Compiled &compiled);
  mlir::FailureOr<std::vector<RunResult>>
  mergeGroups(std::vector<RunResult> results) const;

  const LayerSpec &spec;
  mlir::ModuleOp module;
  RankRunOptions options;
  /// One per rank; a single one for the host.
  std::vector<std::unique_ptr<moert::Device>> devices;
  /// Set if ranks write to each other's memory.
  std::vector<std::shared_ptr<moert::PeerDevice>> peers;
  /// Null if weights are generated.
  std::unique_ptr<moert::Checkpoint> checkpoint;
  /// Per group: the inputs and outputs of the layer on one rank, with the
  /// group's tokens.
  Groups groups;
  /// Weights of the layer on one rank, if they are generated or checked.
  std::vector<HostTensor> weights;
  /// More inputs of calls, each for all groups.
  std::vector<Groups> otherInputs;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RANKRUN_H
