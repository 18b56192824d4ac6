//===- Executor.h - runs a plan on a device ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_EXECUTOR_H
#define MOERT_EXECUTOR_H

#include "moert/Communicator.h"
#include "moert/Device.h"
#include "moert/ExecutorTypes.h"
#include "moert/Plan.h"
#include "moert/SharedWorkspace.h"
#include "moert/Trace.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moert {

class Bindings;
class LatestRun;
struct LayerRanks;
struct LoadedLayer;
struct OwnWorkspace;
struct Workspaces;

/// Runs one plan. Calls on one executor are made one at a time; executors that
/// share a device, clones included, may run at the same time from several
/// threads. Runs of one executor are serialized on the device, whatever their
/// streams.
class Executor {
public:
  ~Executor();

  /// Verifies the plan, loads the module and looks up every kernel. The device
  /// outlives the executor.
  static Result<std::unique_ptr<Executor>> create(Plan plan, Device &device,
                                                  const ModuleImage &image,
                                                  ExecutorOptions options = {});

  /// Creates a second executor for an overlapping micro-batch. Plan, module,
  /// bound and prepared weights are shared; inputs, outputs, streams and
  /// workspace are not.
  Result<std::unique_ptr<Executor>> clone() const;

  const Plan &plan() const;

  /// Bytes of a workspace that serves every call of up to `tokens` tokens,
  /// including calls that run as two micro-batches.
  Result<int64_t> workspaceBytes(int64_t tokens) const;

  /// Binds an input, a weight or an output. The first dimension of an input or
  /// output may have any size up to that of max_tokens; a run needs as many
  /// rows as its token count calls for. The memory stays the caller's and lives
  /// until the last run with it is complete.
  ///
  /// A prepared tensor may be bound too, unless it overwrites a weight
  /// (TensorDecl::inPlaceOf). Its address is a multiple of kWorkspaceAlignment;
  /// the next prepareWeights() writes there instead of allocating. If a weight
  /// is bound to other memory after that, the binding of the prepared tensor
  /// ends, since a clone may still read its values: bind it again, or the next
  /// prepareWeights() allocates new memory.
  Status bind(const std::string &name, const TensorView &view);
  /// Success if the tensor can be bound as `view`.
  Status checkBinding(const std::string &name, const TensorView &view) const;
  /// Binds all tensors, or none if one of them cannot be bound.
  Status
  bindAll(const std::vector<std::pair<std::string, TensorView>> &tensors);
  /// The view that a tensor is bound to.
  Result<TensorView> bound(const std::string &name) const;

  /// Whether the bound weights have been prepared.
  bool isPrepared() const;
  /// Runs the prepare steps, which may overwrite weights
  /// (TensorDecl::inPlaceOf). Needed once after the weights are bound, if the
  /// plan has such steps, and again after one of the weights is bound anew;
  /// overwritten weights must be bound anew first. A call in between does
  /// nothing.
  ///
  /// If all weights are bound to the memory that they were last prepared from,
  /// the prepared tensors keep their memory, so that clones and captured graphs
  /// use the new values too. Their runs and replays must be complete before the
  /// call.
  Result<PrepareReport> prepareWeights();
  /// Prepares again after the caller has written to weights without binding
  /// them anew. An error if prepare steps have overwritten one of the weights.
  Result<PrepareReport> prepareAgain();
  /// Unbinds the weights whose memory no run reads, so that the caller may free
  /// it. The layer stays prepared; before it is prepared again, all released
  /// weights must be bound anew.
  Status releaseWeights();

  /// Writes the weights that runs read, prepared or not, to a file
  /// (docs/design/runtime.md) for bindPrepared(). Prepares them first if
  /// necessary. A failure leaves an existing file unchanged.
  Result<PreparedFileReport>
  writePrepared(const std::string &path,
                const PreparedFileOptions &options = {});
  /// Replaces binding and preparing weights: reads a file that the same layer
  /// has written, possibly on another device of the same kind, into memory that
  /// the executor owns. Weights bound before are unbound. A failure before the
  /// file is read and verified changes nothing.
  Result<PreparedFileReport>
  bindPrepared(const std::string &path,
               const PreparedFileOptions &options = {});

  /// The rank whose weights these are, if set by setRank() or the communicator.
  /// For plans of several ranks.
  std::optional<int64_t> rank() const;
  /// Sets rank(). Afterwards communicators and prepared files of other ranks
  /// are rejected.
  Status setRank(int64_t rank);
  /// Success if weights of that rank may be bound: the communicator, if any,
  /// has the same rank.
  Status checkRank(int64_t rank) const;

  /// Makes each later run() without a workspace argument use this slot. The
  /// executor keeps the shared workspace alive; null selects the executor's own
  /// workspace again.
  Status useWorkspace(std::shared_ptr<SharedWorkspace> workspace, int slot);

  /// From `fromTokens` tokens per rank on, a run of a plan of several ranks
  /// becomes two micro-batches: one half communicates while the other computes
  /// (docs/use/parallel.md). 0, the default, means never. All ranks must pass
  /// the same value, before useCommunicator(), which compares them. A batch
  /// whose halves cannot run side by side, because of launches that need all of
  /// their CTAs resident, still runs as a whole.
  Status useMicroBatches(int64_t fromTokens);

  /// Sets the communicator for the collectives of a plan of several ranks;
  /// needed before its first run. All ranks call it, since it checks that all
  /// have the same plan. The communicator is kept alive while it is used. Waits
  /// for runs that are not complete.
  Status useCommunicator(std::shared_ptr<Communicator> communicator);

  /// Runs the variant for `tokens` tokens (the sum over all
  /// `mesh.tokenRanks()`, each of which has the same number). The workspace is
  /// the caller's, or the slot of a shared workspace, or one that the executor
  /// owns and grows as needed. `stream`, if given, replaces the executor's
  /// first stream: the run begins after earlier work of that stream and ends
  /// before later work.
  ///
  /// The host does not wait for the device, unless the executor's own workspace
  /// has to grow. A run on another stream than the previous one waits for the
  /// previous run on the device.
  ///
  /// During stream capture the graph owns what the run uses: kernels, prepared
  /// weights, and the workspace, unless it is the caller's. Captured runs share
  /// a workspace of their own, separate from that of other runs; it never
  /// moves, and a larger run gets a new one. The caller orders replays that
  /// share a workspace.
  Status run(int64_t tokens, Stream *stream = nullptr);
  Status run(int64_t tokens, WorkspaceView workspace, Stream *stream = nullptr);

  /// The first stream of runs that name none.
  Stream &ownStream() const;

  /// Whether the latest run became part of a graph.
  bool isCaptured() const { return wasCaptured; }

  /// Whether the steps of the latest run include launches that compute results
  /// of kind `made`, which a collective's kernel can compute instead
  /// (Step::replacedStep). A run skips these launches if
  /// Communicator::runsKernels().
  bool hasReplaced(Replaced made) const;
  /// Runs only these launches, on the data that the latest run left in its
  /// workspace, to measure their time.
  Status runReplaced(Replaced made, Stream &stream);

  /// Runs twice, in the executor's own or a shared workspace, and returns the
  /// begin and end of each launch and collective of the second run; waits for
  /// its end. GPU timestamps are taken between steps, so no launch begins early
  /// (Step::dependent); on devices without a clock the host waits after each
  /// step.
  Result<std::vector<TracedStep>> trace(int64_t tokens,
                                        Stream *stream = nullptr);

  /// Waits until all runs are complete, except replays of graphs. The caller
  /// must wait for replays before freeing, binding or preparing anything they
  /// use.
  Status synchronize();
  /// Waits for one stream, any stream of the device. For a plan of several
  /// ranks the wait fails after the communicator's time limit, so that it does
  /// not hang if a rank is lost.
  Status synchronize(Stream &stream);

  /// The address of a tensor in the latest run, with the shape of that run. For
  /// debugging: tensors that share a slot overwrite each other unless `keepAll`
  /// is set. Workspace tensors of a run as two micro-batches cannot be viewed,
  /// since each exists twice.
  Result<TensorView> view(const std::string &name) const;

private:
  Executor() = default;

  static Result<std::unique_ptr<Executor>>
  create(std::shared_ptr<const LoadedLayer> layer, Bindings bindings,
         LayerRanks ranks);
  Result<PrepareReport> prepare();
  Status growWorkspace(OwnWorkspace &own, int64_t tokens);
  /// Runs in `workspace`; `owner` keeps it alive unless it is the caller's.
  Status run(int64_t tokens, WorkspaceView workspace,
             std::shared_ptr<const void> owner, RunOrder &order, Stream &first,
             const StreamState &state);

  /// Shared with clones.
  std::shared_ptr<const LoadedLayer> layer;
  std::unique_ptr<Bindings> bindings;
  std::unique_ptr<LayerRanks> ranks;
  std::unique_ptr<Workspaces> workspaces;
  std::unique_ptr<LatestRun> latest;
  bool wasCaptured = false;
};

} // namespace moert

#endif // MOERT_EXECUTOR_H
