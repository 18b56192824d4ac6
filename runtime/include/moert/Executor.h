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
#include "moert/Plan.h"
#include "moert/Trace.h"
#include "moert/Workspace.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace moert {

struct GatheredResult;

/// Results of a launch that the kernel of a collective may compute instead: the
/// sums over a row's slots ahead of a sum over ranks, or the quantized rows of
/// an all-gather.
enum class Replaced : uint8_t { Sums, Codes };
class BoundMemory;
class MicroBatches;
class RunOrder;
class SafetensorsFile;
struct MemoryRange;
struct SafetensorsEntry;

/// A tensor in device memory, not owned.
struct TensorView {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// In elements; empty means contiguous and row-major.
  std::vector<int64_t> strides;
};

struct ExecutorOptions {
  /// Gives every workspace tensor its own slot, so that view() finds all of
  /// them intact after a run.
  bool keepAll = false;
  /// Fills workspace and outputs with 0xFF bytes (NaN) before each run.
  bool poison = false;
  /// Lets the plan's dependent launches begin early.
  bool dependentLaunches = true;
  /// The layer as JSON (Package::spec), or empty. Prepared files are identified
  /// by it, since the plan and the names of kernels do not say all that gives
  /// weights their meaning.
  std::string description;
};

/// Workspace that the caller owns, aligned to kWorkspaceAlignment.
struct WorkspaceView {
  void *data = nullptr;
  int64_t bytes = 0;
};

/// Workspace that the runtime owns and layers share: two slots, for two
/// overlapping micro-batches. Runs in one slot are serialized, whatever streams
/// and threads they come from; the caller orders replays of graphs.
class SharedWorkspace {
public:
  static constexpr int kNumSlots = 2;

  /// `bytes` per slot: the maximum of workspaceBytes() over the layers that
  /// will use it.
  static Result<std::shared_ptr<SharedWorkspace>> create(Device &device,
                                                         int64_t bytes);
  ~SharedWorkspace();

  /// `index` is 0 or 1.
  WorkspaceView slot(int index) const;

private:
  friend class Executor;

  SharedWorkspace(std::unique_ptr<Buffer> buffer, int64_t bytes);

  const std::unique_ptr<Buffer> buffer;
  /// The size of one slot.
  const int64_t bytes;
  /// Orders the runs of each slot.
  std::array<std::unique_ptr<RunOrder>, kNumSlots> orders;
};

/// Memory and time that prepareWeights() took.
struct PrepareReport {
  /// Bytes allocated, in addition to memory that the caller gave.
  int64_t bytes = 0;
  /// Bytes of weights that were overwritten.
  int64_t inPlaceBytes = 0;
  double seconds = 0;
};

/// Options for writing and reading a file of prepared weights.
struct PreparedFileOptions {
  /// For a plan of several ranks: the rank of these weights, if
  /// Executor::rank() does not know it, or to replace them by the weights of
  /// another rank.
  std::optional<int64_t> rank = std::nullopt;
  /// Whether the data read is compared with the digests in the file.
  bool verify = true;
  /// Progress callback: bytes done, bytes in all.
  std::function<void(uint64_t, uint64_t)> step = nullptr;
};

/// Bytes of a prepared file that were written or read, and the time taken.
struct PreparedFileReport {
  int64_t bytes = 0;
  double seconds = 0;
};

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

  const Plan &plan() const { return *thePlan; }

  /// Bytes of a workspace that serves every call of up to `tokens` tokens,
  /// including calls that run as two micro-batches.
  Result<int64_t> workspaceBytes(int64_t tokens) const;

  /// Binds an input, a weight or an output. The first dimension of an input or
  /// output may have any size up to that of max_tokens; a run needs as many
  /// rows as its token count calls for. The memory stays the caller's and lives
  /// until the last run with it is complete.
  ///
  /// A prepared tensor that is not made in the memory of a weight may be bound
  /// too, at a multiple of kWorkspaceAlignment: the next prepareWeights() then
  /// writes there instead of allocating. Such memory serves the currently bound
  /// weights only. After other weights are bound it must be bound again, so
  /// that no clone writes to memory that another executor reads.
  Status bind(const std::string &name, const TensorView &view);
  /// Success if the tensor can be bound as `view`.
  Status checkBinding(const std::string &name, const TensorView &view) const;
  /// Binds all tensors, or none if one of them cannot be bound.
  Status
  bindAll(const std::vector<std::pair<std::string, TensorView>> &tensors);
  /// The view that a tensor is bound to.
  Result<TensorView> bound(const std::string &name) const;

  /// Per tensor of the plan: whether steps of runs take it as an argument.
  std::vector<bool> findReadByRuns() const;
  /// Per tensor of the plan: whether steps of runs read its memory, directly or
  /// through a prepared tensor that was made there.
  std::vector<bool> findMemoryReadByRuns() const;

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
  std::optional<int64_t> rank() const { return ownRank; }
  /// Sets rank(). Afterwards communicators and prepared files of other ranks
  /// are rejected.
  Status setRank(int64_t rank);
  /// Success if weights of that rank may be bound: the communicator, if any,
  /// has the same rank.
  Status checkRank(int64_t rank) const;

  /// Makes run() without a workspace use this slot from now on, and keeps it
  /// alive while it is used; null returns to a workspace that the executor
  /// owns.
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

  /// Whether the latest run became part of a graph.
  bool isCaptured() const { return wasCaptured; }

  /// Whether the latest run had launches whose results, of kind `made`,
  /// collectives compute instead if the communicator runs their kernels
  /// (Step::replacedStep).
  bool hasReplaced(Replaced made) const;
  /// Runs only those launches of the latest run, on what it left in its
  /// workspace, to measure their time for comparison.
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
  /// ranks the wait has the communicator's limit, so that a lost rank ends it.
  Status synchronize(Stream &stream);

  /// The address of a tensor in the latest run, with the shape of that run. For
  /// debugging: tensors that share a slot overwrite each other unless `keepAll`
  /// is set. Workspace tensors of a run as two micro-batches cannot be viewed,
  /// since each exists twice.
  Result<TensorView> view(const std::string &name) const;

private:
  friend class MicroBatches;

  Executor(Device &device, ExecutorOptions options);

  struct Binding {
    void *data = nullptr;
    std::vector<int64_t> shape;
    /// In elements; filled in for contiguous tensors too.
    std::vector<int64_t> strides;
    bool bound = false;
    /// Overwritten by prepare steps; for weights.
    bool overwritten = false;
    /// Unbound because no run reads it; for weights.
    bool released = false;
    /// Bound, but nothing was prepared in it yet; for prepared tensors.
    bool isNew = false;
  };

  struct PreparedTensor {
    size_t index = 0;
    std::vector<int64_t> shape;
    size_t bytes = 0;
  };

  /// A step, fully evaluated for one token count and workspace.
  struct ResolvedStep {
    Step::Kind kind = Step::Kind::Launch;
    int64_t stream = 0;
    Event *event = nullptr;
    Kernel *kernel = nullptr;
    LaunchDims dims;
    size_t firstArg = 0;
    size_t numArgs = 0;
    size_t firstMap = 0;
    size_t numMaps = 0;
    /// For a collective; its parts are in `resolvedParts`.
    Collective collective = {};
    size_t firstPart = 0;
    /// For a launch: the results that the kernel of a collective may compute
    /// instead (Step::replacedStep).
    std::optional<Replaced> replaced = {};
    /// For a collective: a chunk of a larger collective, and not the last one.
    bool isFollowed = false;
  };

  /// An argument of a resolved step that holds the address of an input or
  /// output.
  struct MovableArgument {
    int64_t tensor;
    size_t index;
  };

  /// Memory that the executor owns, for runs of up to `tokens` tokens.
  struct OwnWorkspace {
    std::shared_ptr<Buffer> buffer;
    int64_t tokens = -1;

    WorkspaceView view() const {
      return {buffer->data(), static_cast<int64_t>(buffer->size())};
    }
  };

  /// Executes step number `size_t` of the given executor's resolved run, with
  /// `Stream` as its first stream.
  using GiveStep = std::function<Status(Executor &, size_t, Stream &)>;

  /// A tensor map and the recipe that it was encoded from.
  struct EncodedMap {
    TensorMapRecipe recipe;
    TensorMap map;
  };

  Status createStreams();
  Result<int64_t> findTensor(const std::string &name) const;
  bool isLaidOutAs(int64_t index, const TensorView &view) const;
  /// Checks a binding by index; skips the layout if `isLaidOut`.
  Status checkBinding(int64_t index, const TensorView &view,
                      bool isLaidOut) const;
  void move(int64_t index, void *data);
  void moveArguments();
  Status checkWeights() const;
  Result<std::vector<PreparedTensor>> listPrepared() const;
  std::map<std::string, std::string>
  describePrepared(std::optional<int64_t> rank) const;
  Result<std::vector<const SafetensorsEntry *>>
  findPrepared(const std::string &path, const SafetensorsFile &file,
               const std::vector<PreparedTensor> &list) const;
  Status usePrepared(const std::vector<PreparedTensor> &list,
                     std::vector<std::shared_ptr<Buffer>> buffers);
  /// Address of a bound or prepared tensor; null for a workspace tensor.
  void *addressOf(size_t tensor) const;
  /// The bytes of a weight, from its first to its last element.
  MemoryRange rangeOfWeight(size_t tensor) const;
  BoundMemory &findMemory();
  /// Success if no memory that a run of `tokens` tokens writes is bound to
  /// another tensor too: see Overlap.h.
  Status checkOverlap(int64_t tokens);
  /// Success if prepare steps write to no memory that another tensor uses.
  Status checkPrepareMemory() const;
  /// Whether a prepared tensor is made in memory that the caller bound for the
  /// current weights.
  bool hasGivenMemory(size_t tensor) const {
    return bindings[tensor].bound &&
           (bindings[tensor].isNew || !haveWeightsMoved);
  }
  Status checkReady(int64_t tokens) const;
  Status checkReadyNow(int64_t tokens) const;
  Result<PrepareReport> prepare();
  Status allocatePrepared(PrepareReport &report);
  Status growWorkspace(OwnWorkspace &own, int64_t tokens);
  /// Orders runs for which the caller gives no workspace.
  RunOrder &orderOfRuns() {
    return sharedWorkspace ? *sharedWorkspace->orders[sharedSlot] : *order;
  }
  /// Runs in `workspace`; `owner` keeps it alive unless it is the caller's.
  Status run(int64_t tokens, WorkspaceView workspace,
             std::shared_ptr<const void> owner, RunOrder &order, Stream &first,
             const StreamState &state);
  Status retain(Stream &capturing, std::shared_ptr<const void> workspace);
  Status poison(Stream &stream, int64_t tokens);
  /// Resolves the run if it differs from the resolved one.
  Status resolve(int64_t tokens, WorkspaceView workspace);
  Status resolveRun(int64_t tokens, WorkspaceView workspace);
  Status resolveHalves(int64_t tokens, WorkspaceView workspace);
  /// Drops the executors of both halves, since bindings that they share are
  /// about to change, and the cached addresses of weights (`memory`).
  void dropHalves();
  /// `hasMicroBatches`: whether a run of `tokens` tokens is to be two
  /// micro-batches. `isHalved`: whether it is, given that the halves must be
  /// able to run side by side.
  bool hasMicroBatches(int64_t tokens) const;
  Result<bool> isHalved(int64_t tokens) const;
  /// Lays out the workspace and returns its bytes.
  Result<int64_t> layOut(int64_t tokens);
  Status placeResults(int64_t variant, int64_t tokens);
  /// Whether results() of the communicator have moved since the run was
  /// resolved. All ranks use the newest results(), whatever each has resolved.
  bool haveResultsMoved() const;
  Status resolveSteps(const std::vector<Step> &steps, const std::string &where,
                      int64_t tokens);
  Status resolveStep(const Step &step, int64_t tokens);
  Status resolveLaunch(const Step &step, int64_t tokens, ResolvedStep &made);
  Status resolvePacked(const Step &step, int64_t tokens, ResolvedStep &made);
  Status resolveCollective(const Step &step, int64_t tokens,
                           ResolvedStep &made);
  bool mayBeginEarly(const Step &step) const;
  Status resolveMaps(const Step &step, int64_t tokens);
  Status encodeWeightMaps(int64_t tensor, const Binding &binding);
  Result<TensorMap> encodeMap(int64_t kernel, size_t map, int64_t tensor,
                              void *data, int64_t rows,
                              const std::vector<int64_t> &strides);
  Status runResolved(Stream &first, int64_t variant);
  Status runStep(const ResolvedStep &step, Stream &first);
  /// Runs a step of one half of a batch; an error names the half.
  Status runOfHalf(size_t step, Stream &first);
  Stream &streamOf(const ResolvedStep &step, Stream &first) const {
    return step.stream == 0 ? first : *streams[step.stream];
  }
  TracedStep describeStep(size_t step) const;
  /// Prefix of a step's name in messages: the half of the batch it belongs to.
  std::string halfPrefix() const {
    return half ? (*half == 0 ? "a: " : "b: ") : "";
  }
  Status launchStep(const ResolvedStep &step, Stream &stream);
  /// Whether the step is skipped because a collective does its work.
  bool isLeftOut(const ResolvedStep &step) const;
  /// Whether ranks communicate in the step.
  bool isExchanged(const ResolvedStep &step) const {
    return step.kind == Step::Kind::Collective && !isLeftOut(step);
  }

  Device &device;
  ExecutorOptions options;
  std::shared_ptr<const Plan> thePlan;
  /// Identifies the layer in prepared files.
  std::string identity;
  std::optional<int64_t> ownRank;
  std::shared_ptr<Module> module;
  /// Per plan kernel.
  std::vector<Kernel *> kernels;
  /// Per plan tensor; unbound for workspace tensors, and for prepared tensors
  /// in memory of the executor's own.
  std::vector<Binding> bindings;
  /// Per plan tensor; null except for prepared tensors in memory of the
  /// executor's own.
  std::vector<std::shared_ptr<Buffer>> prepared;
  /// Per plan tensor; null except for weights read from a prepared file.
  std::vector<std::shared_ptr<Buffer>> ownWeights;
  bool isPrepared = false;
  /// Whether a weight was bound to other memory since the last prepare steps.
  bool haveWeightsMoved = true;
  /// Whether the weights were read from a prepared file.
  bool isFromFile = false;
  PrepareReport prepareReport;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  /// Workspace for runs outside graphs, and for captured runs.
  OwnWorkspace ownWorkspace, capturedWorkspace;
  /// Orders runs in the executor's own workspaces and in the caller's.
  std::unique_ptr<RunOrder> order;
  bool wasCaptured = false;
  std::shared_ptr<SharedWorkspace> sharedWorkspace;
  int sharedSlot = 0;
  std::shared_ptr<Communicator> communicator;
  /// Tokens per rank; 0 means never.
  int64_t microBatchesFrom = 0;
  /// Per variant: the tensors that are in the communicator's results().
  std::vector<std::vector<GatheredResult>> gatheredResults;
  /// Per axis, in bytes of the communicator's results(): the size reserved, and
  /// the begin and end of the part that this executor's runs use.
  std::array<int64_t, 2> resultBytes = {}, resultBegins = {}, resultEnds = {};
  /// Per axis: the results() that the resolved run uses; null if it uses none.
  std::array<void *, 2> resolvedResults = {};
  /// For the clone that runs one half of each batch: which half.
  std::optional<size_t> half;
  /// Null before the first run as two micro-batches.
  std::unique_ptr<MicroBatches> halves;
  /// Whether the resolved run is two micro-batches.
  bool runsHalves = false;
  /// Per plan tensor: whether copy engines move it into results().
  std::vector<bool> isCopied;
  /// The latest resolved run, kept since the next one is usually the same.
  std::vector<ResolvedStep> resolved;
  std::vector<uint64_t> resolvedArgs;
  std::vector<TensorMap> resolvedMaps;
  std::vector<CollectivePart> resolvedParts;
  /// Keyed by kernel, map and tensor.
  std::map<std::tuple<int64_t, size_t, int64_t>, EncodedMap> encodedMaps;
  WorkspaceView resolvedWorkspace;
  /// Offsets of workspace tensors for `layoutTokens` tokens, -1 if there is
  /// none yet. Still valid after arguments move.
  WorkspaceLayout layout;
  int64_t layoutTokens = -1;
  /// -1 if the next run has to be resolved.
  int64_t resolvedTokens = -1;
  /// Addresses of all plan tensors in the latest run; null if there was none.
  std::vector<void *> addresses;
  /// Token count of the latest run, -1 before the first.
  int64_t lastTokens = -1;
  std::vector<MovableArgument> movableArgs;
  /// Per plan tensor: whether its address is also encoded in tensor maps or
  /// collectives of the resolved steps.
  std::vector<bool> isEncoded;
  /// Whether an input or output was bound to other memory since the run was
  /// resolved.
  bool hasMoved = false;
  /// Address ranges of weights and arguments; null after a weight was bound.
  std::unique_ptr<BoundMemory> memory;
};

} // namespace moert

#endif // MOERT_EXECUTOR_H
