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

/// What launches make that collectives may do as part of themselves: sums over
/// the slots of a row that is summed over ranks, or codes of rows that are
/// gathered.
enum class Replaced : uint8_t { Sums, Codes };
class BoundMemory;
class MicroBatches;
class RunOrder;
class SafetensorsFile;
struct MemoryRange;
struct SafetensorsEntry;

/// A tensor somewhere in device memory, not owned.
struct TensorView {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// In elements; empty means contiguous and row-major.
  std::vector<int64_t> strides;
};

struct ExecutorOptions {
  /// Gives every workspace tensor a slot of its own, so that view() finds all
  /// of them intact after a run.
  bool keepAll = false;
  /// Fills workspace and outputs with 0xFF bytes (NaN) before each run.
  bool poison = false;
  /// Lets launches that the plan says are dependent begin early.
  bool dependentLaunches = true;
  /// The layer as JSON (Package::spec): what gives its weights their meaning,
  /// where plan and kernels' names do not say it. Empty where there is none.
  /// Files of prepared weights are of one description.
  std::string description;
};

/// Workspace that the caller owns, aligned to kWorkspaceAlignment.
struct WorkspaceView {
  void *data = nullptr;
  int64_t bytes = 0;
};

/// Workspace that the runtime owns and layers share: two slots, for two
/// micro-batches that overlap. Runs in one slot follow each other, whatever
/// streams and threads give them; the caller orders replays of graphs.
class SharedWorkspace {
public:
  static constexpr int kNumSlots = 2;

  /// `bytes` per slot: the most that workspaceBytes() answers for the layers
  /// that will use it.
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
  /// Per slot: orders the runs in it.
  std::array<std::unique_ptr<RunOrder>, kNumSlots> orders;
};

/// What prepareWeights() made and how long it took.
struct PrepareReport {
  /// Bytes of memory that was allocated, beside what the caller gave.
  int64_t bytes = 0;
  /// Bytes of weights that were overwritten.
  int64_t inPlaceBytes = 0;
  double seconds = 0;
};

/// How a file of prepared weights is written and read.
struct PreparedFileOptions {
  /// Of a plan of several ranks: whose weights these are, where Executor::
  /// rank() does not know it, or those of another are to take their place.
  std::optional<int64_t> rank = std::nullopt;
  /// Whether the digests in the file are compared with what is read.
  bool verify = true;
  /// Called with the bytes that are done, of how many.
  std::function<void(uint64_t, uint64_t)> step = nullptr;
};

/// What was written or read of such a file, and how long it took.
struct PreparedFileReport {
  int64_t bytes = 0;
  double seconds = 0;
};

/// Runs one plan. Calls on one executor are made one at a time; executors that
/// share a device, clones included, run at the same time from several threads.
/// Runs of one executor follow each other on the device, whatever streams they
/// are given to.
class Executor {
public:
  ~Executor();

  /// Verifies the plan, loads the module and looks up every kernel. The device
  /// outlives the executor.
  static Result<std::unique_ptr<Executor>> create(Plan plan, Device &device,
                                                  const ModuleImage &image,
                                                  ExecutorOptions options = {});

  /// A second executor for an overlapping micro-batch: it shares plan, module,
  /// bound and prepared weights, and has inputs, outputs, streams and workspace
  /// of its own.
  Result<std::unique_ptr<Executor>> clone() const;

  const Plan &plan() const { return *thePlan; }

  /// Bytes of a workspace that serves every call of up to `tokens` tokens,
  /// those that are run as two micro-batches too.
  Result<int64_t> workspaceBytes(int64_t tokens) const;

  /// Binds an input, a weight or an output. The first dimension of an input or
  /// output may have any size up to that of max_tokens; a run needs as many
  /// rows as its tokens call for. The memory stays the caller's and lives until
  /// the last run with it is complete.
  ///
  /// A prepared tensor that does not lie in the memory of a weight may be bound
  /// too, to a multiple of kWorkspaceAlignment: the next prepareWeights() makes
  /// it there and not in memory of the executor's own. This memory serves the
  /// weights that are bound now: other ones need it bound anew, so that no
  /// clone writes to what another executor reads.
  Status bind(const std::string &name, const TensorView &view);
  /// Success where the tensor can be bound so.
  Status checkBinding(const std::string &name, const TensorView &view) const;
  /// Binds all of them, or none where one cannot be.
  Status
  bindAll(const std::vector<std::pair<std::string, TensorView>> &tensors);
  /// What a tensor is bound to.
  Result<TensorView> bound(const std::string &name) const;

  /// Per tensor of the plan: whether steps of runs have it as an argument.
  std::vector<bool> findReadByRuns() const;
  /// Per tensor of the plan: whether steps of runs have its memory as an
  /// argument, be it through a prepared tensor that lies there.
  std::vector<bool> findMemoryReadByRuns() const;

  /// Runs the prepare steps, which may overwrite weights (TensorDecl::
  /// inPlaceOf). Needed once after the weights are bound, where the plan has
  /// such steps, and again when one of them is bound anew; all that were
  /// overwritten are bound anew then. A call in between does nothing.
  ///
  /// Where all weights are bound to the memory that they were prepared from
  /// before, the prepared ones keep theirs, so that clones and captured graphs
  /// use the new ones too. Their runs and replays are complete before.
  Result<PrepareReport> prepareWeights();
  /// Prepares weights again that were written to since, without being bound
  /// anew. An error if prepare steps have overwritten one of them.
  Result<PrepareReport> prepareAgain();
  /// Lets go of the weights whose memory no run reads, so that the caller may
  /// free it. The layer stays prepared; before it is prepared again, all that
  /// were released are bound anew.
  Status releaseWeights();

  /// Writes what runs read of the weights, prepared or as they are, to a file
  /// (docs/runtime.md) that bindPrepared() takes; prepares them before, where
  /// that is due. A failure leaves an old file as it was.
  Result<PreparedFileReport>
  writePrepared(const std::string &path,
                const PreparedFileOptions &options = {});
  /// In place of binding weights and preparing them: reads a file that the same
  /// layer has written, on another device of its kind perhaps, into memory of
  /// the executor's own. Weights that were bound are let go of. A failure
  /// before the file is read and verified leaves all as it was.
  Result<PreparedFileReport>
  bindPrepared(const std::string &path,
               const PreparedFileOptions &options = {});

  /// Of a plan of several ranks: whose weights these are, where that was said,
  /// by setRank() or the communicator.
  std::optional<int64_t> rank() const { return ownRank; }
  /// Afterwards no communicator and no prepared file of another rank is taken.
  Status setRank(int64_t rank);
  /// Whether weights of that rank may be bound: its communicator is of none
  /// other.
  Status checkRank(int64_t rank) const;

  /// From now on run() without a workspace runs in this slot, which lives as
  /// long as it is used; null: in memory of the executor's own again.
  Status useWorkspace(std::shared_ptr<SharedWorkspace> workspace, int slot);

  /// Of a plan of several ranks: from so many tokens per rank on a run is two
  /// micro-batches, halves of its batch, of which one exchanges rows beside
  /// what the other computes (docs/parallel.md); 0 for never, as without this
  /// call. All ranks say the same, ahead of useCommunicator(), which asks them.
  /// A batch whose halves may not run side by side, as they have launches that
  /// need all of their CTAs at once, is run as a whole all the same.
  Status useMicroBatches(int64_t fromTokens);

  /// What the collectives of a plan of several ranks go through; needed before
  /// the first run of one. Asks all ranks whether they have the same plan, so
  /// that all of them call this; it lives as long as it is used. Runs that are
  /// not complete are waited for.
  Status useCommunicator(std::shared_ptr<Communicator> communicator);

  /// Runs the variant for `tokens` (those of all `mesh.tokenRanks()` together,
  /// each of which has as many) in the slot of a shared workspace, else in a
  /// workspace that the executor owns and grows as needed, or in the caller's.
  /// `stream`, where given, takes the
  /// place of the executor's first stream: the run begins after what was given
  /// to it before, and what is given to it later begins after the run.
  ///
  /// The host does not wait for the device, unless its own workspace has to
  /// grow. A run on another stream than the latest one waits for that one, on
  /// the device.
  ///
  /// Where the stream is being captured, the graph owns what the run uses:
  /// kernels, prepared weights, and the workspace, unless it is the caller's.
  /// The executor's own one is then another than that of runs outside graphs,
  /// which all captured runs share and which never moves: a larger run gets
  /// another. The caller orders replays that share a workspace.
  Status run(int64_t tokens, Stream *stream = nullptr);
  Status run(int64_t tokens, WorkspaceView workspace, Stream *stream = nullptr);

  /// Whether the latest run became part of a graph.
  bool isCaptured() const { return wasCaptured; }

  /// Whether the latest run was of launches that kernels of collectives do as
  /// part of themselves where the communicator runs these
  /// (Step::replacedStep), and which make that.
  bool hasReplaced(Replaced made) const;
  /// Of the latest run those launches alone, on what it has left in its
  /// workspace: what they take, to compare.
  Status runReplaced(Replaced made, Stream &stream);

  /// Runs twice, in the executor's own or a shared workspace, and says when
  /// each launch and collective of the second run was under way; waits for its
  /// end. A GPU's own clock is read between steps, so that no launch begins
  /// early (Step::dependent); without such a clock each step is waited for.
  Result<std::vector<TracedStep>> trace(int64_t tokens,
                                        Stream *stream = nullptr);

  /// Returns when all runs are complete, but for those that are part of a
  /// graph. Those are the caller's to wait for, before what they use is freed,
  /// bound anew or prepared anew too.
  Status synchronize();
  /// The same for one stream, whoever's. Of a plan of several ranks the wait
  /// has the communicator's limit, so that a rank that is gone ends it.
  Status synchronize(Stream &stream);

  /// Where a tensor of the plan was in the latest run, with the shape of that
  /// run. Meant for debugging: what shares a slot is overwritten unless the
  /// option keepAll is set. Two micro-batches have two of each workspace
  /// tensor, of which none is answered.
  Result<TensorView> view(const std::string &name) const;

private:
  friend class MicroBatches;

  Executor(Device &device, ExecutorOptions options);

  struct Binding {
    void *data = nullptr;
    std::vector<int64_t> shape;
    /// In elements, also of a contiguous tensor.
    std::vector<int64_t> strides;
    bool bound = false;
    /// A weight that prepare steps have overwritten.
    bool overwritten = false;
    /// A weight that is not bound, since runs do without it.
    bool released = false;
    /// Memory of a prepared tensor that nothing was prepared in yet.
    bool isNew = false;
  };

  /// A tensor of a prepared file.
  struct PreparedTensor {
    size_t index = 0;
    std::vector<int64_t> shape;
    size_t bytes = 0;
  };

  /// A step with everything evaluated for one token count and workspace.
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
    /// Of a collective; its parts are in resolvedParts.
    Collective collective = {};
    size_t firstPart = 0;
    /// Of a launch: what it makes, where the kernel of a collective may do it
    /// (Step::replacedStep).
    std::optional<Replaced> replaced = {};
    /// Of a collective: it is a piece of a whole, and not the last one.
    bool isFollowed = false;
  };

  /// An argument of a resolved step that is the address of an input or output.
  struct MovableArgument {
    int64_t tensor;
    size_t index;
  };

  /// Memory of the executor's own for runs of up to `tokens` tokens.
  struct OwnWorkspace {
    std::shared_ptr<Buffer> buffer;
    int64_t tokens = -1;

    WorkspaceView view() const {
      return {buffer->data(), static_cast<int64_t>(buffer->size())};
    }
  };

  /// What is done for a step of an executor's resolved run, whose first stream
  /// is given.
  using GiveStep = std::function<Status(Executor &, size_t, Stream &)>;

  /// A tensor map and what it was made from.
  struct EncodedMap {
    TensorMapRecipe recipe;
    TensorMap map;
  };

  Status createStreams();
  Result<int64_t> findTensor(const std::string &name) const;
  bool isLaidOutAs(int64_t index, const TensorView &view) const;
  /// The same of a tensor whose layout may have been checked.
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
  /// Where a bound or prepared tensor is; null for a workspace tensor.
  void *addressOf(size_t tensor) const;
  /// The bytes from the first element of a weight to the last one.
  MemoryRange rangeOfWeight(size_t tensor) const;
  BoundMemory &findMemory();
  /// Whether nothing that a run of so many tokens writes is in memory that is
  /// bound to something else: see Overlap.h.
  Status checkOverlap(int64_t tokens);
  /// Whether prepare steps write to no memory that something else has.
  Status checkPrepareMemory() const;
  /// Whether a prepared tensor is made in memory that the caller gave for the
  /// weights that are bound.
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
  /// The run in `workspace`, which `owner` has where it is not the caller's.
  Status run(int64_t tokens, WorkspaceView workspace,
             std::shared_ptr<const void> owner, RunOrder &order, Stream &first,
             const StreamState &state);
  Status retain(Stream &capturing, std::shared_ptr<const void> workspace);
  Status poison(Stream &stream, int64_t tokens);
  /// Where the run differs from the one that is resolved.
  Status resolve(int64_t tokens, WorkspaceView workspace);
  Status resolveRun(int64_t tokens, WorkspaceView workspace);
  Status resolveHalves(int64_t tokens, WorkspaceView workspace);
  /// Drops the executors of both halves, which share bindings that change now,
  /// and the known places of the weights.
  void dropHalves();
  /// Whether a run of so many tokens is two micro-batches, where they may run
  /// side by side, and whether it is one all the same.
  bool hasMicroBatches(int64_t tokens) const;
  Result<bool> isHalved(int64_t tokens) const;
  /// Lays the workspace out; answers its bytes.
  Result<int64_t> layOut(int64_t tokens);
  Status placeResults(int64_t variant, int64_t tokens);
  /// Whether the communicator has other results() by now than those of the
  /// resolved run. All ranks take the newest ones, whatever each has resolved.
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
  /// Runs a step of a half of a batch; what is wrong says which.
  Status runOfHalf(size_t step, Stream &first);
  Stream &streamOf(const ResolvedStep &step, Stream &first) const {
    return step.stream == 0 ? first : *streams[step.stream];
  }
  TracedStep describeStep(size_t step) const;
  /// In front of what is said of a step: which half of a batch it is of.
  std::string halfPrefix() const {
    return half ? (*half == 0 ? "a: " : "b: ") : "";
  }
  Status launchStep(const ResolvedStep &step, Stream &stream);
  /// Whether nothing is run for the step: of launches that others do.
  bool isLeftOut(const ResolvedStep &step) const;
  /// Whether ranks meet in the step.
  bool isExchanged(const ResolvedStep &step) const {
    return step.kind == Step::Kind::Collective && !isLeftOut(step);
  }

  Device &device;
  ExecutorOptions options;
  std::shared_ptr<const Plan> thePlan;
  /// By which a prepared file knows the layer.
  std::string identity;
  std::optional<int64_t> ownRank;
  std::shared_ptr<Module> module;
  /// Per plan kernel.
  std::vector<Kernel *> kernels;
  /// Per plan tensor; unbound for workspace ones, and for prepared ones that
  /// are in other memory than the caller's.
  std::vector<Binding> bindings;
  /// Per plan tensor; null but for prepared ones in memory of the executor's.
  std::vector<std::shared_ptr<Buffer>> prepared;
  /// Per plan tensor; null but for weights that a prepared file has brought.
  std::vector<std::shared_ptr<Buffer>> ownWeights;
  bool isPrepared = false;
  /// Whether a weight was bound to other memory since the latest prepare steps.
  bool haveWeightsMoved = true;
  /// The weights are from a file of prepared ones.
  bool isFromFile = false;
  PrepareReport prepareReport;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  /// The workspace of runs outside graphs, and that of captured runs.
  OwnWorkspace ownWorkspace, capturedWorkspace;
  /// Orders the runs in the executor's own workspaces and in the caller's.
  std::unique_ptr<RunOrder> order;
  bool wasCaptured = false;
  std::shared_ptr<SharedWorkspace> sharedWorkspace;
  int sharedSlot = 0;
  std::shared_ptr<Communicator> communicator;
  /// Tokens of a rank; 0 for never.
  int64_t microBatchesFrom = 0;
  /// Per variant: what lies in the communicator's results().
  std::vector<std::vector<GatheredResult>> gatheredResults;
  /// By axis: bytes of the communicator's results() that were reserved, from
  /// where on a run has its own, and where they end.
  std::array<int64_t, 2> resultBytes = {}, resultBegins = {}, resultEnds = {};
  /// By axis, the results() that the resolved run has something in; else null.
  std::array<void *, 2> resolvedResults = {};
  /// Of a clone that runs a half of each batch of another executor's: which.
  std::optional<size_t> half;
  /// Null before the first run as two micro-batches.
  std::unique_ptr<MicroBatches> halves;
  /// Whether the resolved run is one of them.
  bool runsHalves = false;
  /// Per plan tensor: whether copy engines bring it to results().
  std::vector<bool> isCopied;
  /// The latest run, kept because the next is most often the same.
  std::vector<ResolvedStep> resolved;
  std::vector<uint64_t> resolvedArgs;
  std::vector<TensorMap> resolvedMaps;
  std::vector<CollectivePart> resolvedParts;
  /// By kernel, map and tensor.
  std::map<std::tuple<int64_t, size_t, int64_t>, EncodedMap> encodedMaps;
  WorkspaceView resolvedWorkspace;
  /// Where workspace tensors lie in a run of `layoutTokens` tokens; -1 for
  /// none yet. It stays where arguments move.
  WorkspaceLayout layout;
  int64_t layoutTokens = -1;
  /// -1 where the next run has to be resolved.
  int64_t resolvedTokens = -1;
  /// Addresses of all plan tensors in the latest run; null where there is none.
  std::vector<void *> addresses;
  /// Token count of the latest run, -1 before the first.
  int64_t lastTokens = -1;
  /// Of the resolved steps.
  std::vector<MovableArgument> movableArgs;
  /// Per plan tensor: whether tensor maps or collectives of the resolved steps
  /// have its address too.
  std::vector<bool> isEncoded;
  /// Whether an input or output was bound elsewhere since the run was resolved.
  bool hasMoved = false;
  /// Where weights and arguments are; null after a weight was bound.
  std::unique_ptr<BoundMemory> memory;
};

} // namespace moert

#endif // MOERT_EXECUTOR_H
