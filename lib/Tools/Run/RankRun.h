//===- RankRun.h - all ranks of a layer in this process ---------*- C++ -*-===//
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
  /// `tokens` are those of a rank.
  RunOptions run;
  uint64_t seed = 0;
  /// A file of tensors of the layer on one rank, with the rows of all groups
  /// one after the other; empty for generated ones.
  std::string inputs;
  /// A file of what calls bring, of all groups likewise; empty for what
  /// `inputs` has.
  std::string hiddenStates;
  /// The weights are wanted on one rank too, for check().
  bool checks = false;
  /// Tokens that count, per group of ranks; empty for all.
  std::vector<int64_t> validTokens;
  /// How many inputs take turns in `run.comparedRuns`.
  int64_t numInputs = 1;
  /// How long a rank waits for the others in one call.
  double limitSeconds = 60;
  /// What compiled kernels run on, as `--device` names it: "cuda" is a GPU for
  /// each rank, between which NCCL moves rows; "cuda:N" one for all.
  std::string device = "host";
  Exchange exchange = Exchange::Default;
  /// Of ranks that write to each other (PeerOptions).
  int64_t leastCopiedBytes = moert::Communicator::kNeverCopied;
  /// Of rows that go to their owners alone (AllToAllOptions).
  int64_t allToAllFrom = 1;
  double allToAllRoom = 0;
  int threads = 0;
  /// A process for each rank, of which this is one, or the one that started
  /// them; null where ranks are threads.
  RankProcesses *processes = nullptr;
  /// Kernels for the device, where there are some already.
  const moert::PackageProgram *program = nullptr;
  const moert::PackageImage *image = nullptr;
};

/// A layer of several ranks, which are threads here or processes. Tensors are
/// those of the layer on one rank for the tokens of all groups, and cut.
class RankRun {
public:
  /// `module` holds the layer of `spec` and outlives this.
  static moert::Result<std::unique_ptr<RankRun>>
  create(const LayerSpec &spec, mlir::ModuleOp module,
         const RankRunOptions &options);

  /// The results of the groups of ranks, all of whose ranks have the same bits.
  /// Prints what is wrong.
  mlir::FailureOr<std::vector<RunResult>> run(ExecutedLevel level);

  /// The outputs of all groups, one after the other.
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
  /// The rank that this process is, where it is one.
  std::optional<int64_t> getOwnRank() const {
    return options.processes ? options.processes->getRank() : std::nullopt;
  }
  moert::Status openDevices();
  struct Compiled;

  moert::Status makeTensors();
  /// What no file has given.
  moert::Status generate(std::vector<HostTensor> &tensors, uint64_t seed) const;
  moert::Status makeOtherInputs(const moert::Plan &plan, int64_t tokens);
  /// The rows of each group of what calls bring.
  using Groups = std::vector<std::vector<HostTensor>>;
  moert::Result<Groups> cutGroups(const std::vector<HostTensor> &all) const;
  mlir::FailureOr<Compiled> compile(ExecutedLevel level);
  /// The tensors of weights on one rank, read or generated.
  moert::Status makeWeights(const moert::Plan &plan);
  /// The tensors that a rank binds, whose weights are of the checkpoint, if
  /// there is one, or cut.
  moert::Result<std::vector<HostTensor>>
  makeRankTensors(const moert::Plan &plan, int64_t rank);
  moert::Status fillRankWeights(std::vector<HostTensor> &tensors, int64_t rank);
  moert::Result<std::vector<std::vector<HostTensor>>>
  makeRankTensors(const moert::Plan &plan);
  class Connector;
  /// With the tensors that a rank binds, or null for those that are made when
  /// the rank is connected.
  moert::Status runRank(Compiled &compiled, int64_t rank, Connector &connector,
                        std::vector<HostTensor> *tensors, RunResult &result);
  /// The layer has what was asked to move its rows.
  moert::Status checkExchange(const moert::Plan &plan) const;
  moert::Result<std::vector<RunResult>> runRanks(Compiled &compiled);
  moert::Status runOwnRank(Compiled &compiled);
  mlir::FailureOr<std::vector<RunResult>>
  mergeGroups(std::vector<RunResult> results) const;

  const LayerSpec &spec;
  mlir::ModuleOp module;
  RankRunOptions options;
  /// One per rank, but for the host, which is one for all.
  std::vector<std::unique_ptr<moert::Device>> devices;
  /// Where ranks write to each other's memory.
  std::vector<std::shared_ptr<moert::PeerDevice>> peers;
  /// Null where weights are generated.
  std::unique_ptr<moert::Checkpoint> checkpoint;
  /// Per group: the inputs and outputs of the layer on one rank, with its
  /// tokens.
  Groups groups;
  /// Weights of the layer on one rank: where they are generated, or checked.
  std::vector<HostTensor> weights;
  /// More of what calls bring, of all groups each.
  std::vector<Groups> otherInputs;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RANKRUN_H
