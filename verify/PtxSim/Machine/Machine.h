//===- Machine.h - warps, CTAs and launches ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_MACHINE_MACHINE_H
#define MOEC_VERIFY_PTXSIM_MACHINE_MACHINE_H

#include "Memory.h"

#include <unordered_map>

namespace moec::ptx {

class Engine;
struct Cluster;
struct Cta;
struct Launch;

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

/// First generic addresses of other state spaces.
inline constexpr uint64_t kSharedWindow = 0x0100'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x0200'0000'0000;
inline constexpr uint64_t kParamWindow = 0x0300'0000'0000;
inline constexpr uint64_t kWindowBytes = 0x0100'0000'0000;
/// Shared memory starts after the bytes that the system reserves.
inline constexpr uint64_t kFirstSharedAddress = 1024;
/// Address bits from here on name another CTA of the cluster (Cluster.h).
inline constexpr unsigned kClusterRankShift = 24;

//===----------------------------------------------------------------------===//
// Asynchronous work
//===----------------------------------------------------------------------===//

/// An operation that proceeds beside the thread that issued it, one step at a
/// time, whenever the schedule chooses.
class AsyncOperation {
public:
  virtual ~AsyncOperation();
  /// Does one step; false after an error.
  virtual bool advance(Engine &engine) = 0;
  virtual bool isDone() const = 0;
  /// Whether the operation still accesses the shared memory of `cta`.
  virtual bool usesShared(const Cta &owner) const = 0;

  Cta *cta = nullptr;
  /// The issuing instruction, by Engine::instructionId.
  uint32_t instruction = 0;
};

class LaneCopies;
class BulkCopy;

/// The bulk copies of a thread, in commit groups.
struct BulkGroups {
  std::vector<std::shared_ptr<BulkCopy>> open;
  /// Committed groups; few, so removal from the front is cheap.
  std::vector<std::vector<std::shared_ptr<BulkCopy>>> committed;
  /// Ticks of units whose writes are complete and not yet acquired by the
  /// thread.
  std::map<unsigned, uint32_t> written;
};

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

enum class GroupState : uint8_t {
  Ready,
  /// Waits for other lanes of the warp at this instruction.
  Converge,
  /// Waits at a named barrier.
  Barrier,
  /// Waits for a phase of an mbarrier.
  Mbarrier,
  /// Waits for registers (setmaxnreg).
  Registers,
  /// Waits for the other warps of its warpgroup.
  Warpgroup,
  /// Waits for the end of the preceding launch.
  Launch,
  /// Waits for the other threads of the cluster.
  Cluster,
};

/// Lanes of a warp that execute together.
struct Group {
  uint32_t pc = 0;
  LaneMask lanes = 0;
  GroupState state = GroupState::Ready;
  /// The next try_wait must fail spuriously.
  bool mustFail = false;
};

/// A warp of a resident CTA.
class Warp {
public:
  Warp(Cta &cta, unsigned index, LaneMask lanes);

  //--- Values ---//

  /// The 32 lanes of a register or constant.
  template <typename T>
  T *lanes(Slot slot) const {
    return reinterpret_cast<T *>(bases[slot.bits >> 31] +
                                 (slot.bits & ~Slot::kConstant));
  }
  LaneMask &predicate(Slot slot) const { return *lanes<LaneMask>(slot); }

  //--- Errors ---//

  /// Reports an error of `lane` at `instruction`; only the first one counts.
  Step fail(const Instruction &instruction, unsigned lane,
            const std::string &text);

  //--- Memory ---//

  /// Resolves an address and checks bounds and alignment; null after an error.
  /// `region` is null for local and parameter memory, `owner` for all but
  /// shared memory, which may be that of another CTA of the cluster.
  struct Place {
    uint8_t *bytes = nullptr;
    Region *region = nullptr;
    uint64_t address = 0;
    Cta *owner = nullptr;
  };
  Place locate(const Instruction &instruction, unsigned lane, Space space,
               uint64_t address, uint64_t size, uint64_t alignment);
  /// Checks order and initialization of an access by `lanes`, which include
  /// `lane`; false after an error.
  bool checkRead(const Instruction &instruction, unsigned lane, LaneMask lanes,
                 const Place &place, uint64_t size, bool isStrong = false);
  bool checkWrite(const Instruction &instruction, unsigned lane, LaneMask lanes,
                  const Place &place, uint64_t size, bool isStrong = false);
  /// Checks that the last write is ordered before `lane`; records nothing.
  bool checkKnown(const Instruction &instruction, unsigned lane,
                  const Place &place, uint64_t size);
  /// Checks a write by `unit` that completes after the instruction.
  bool checkLateWrite(const Instruction &instruction, unsigned lane,
                      unsigned unit, uint32_t tick, const Place &place,
                      uint64_t size);
  Accessor accessor(const Instruction &instruction, unsigned lane,
                    LaneMask lanes, bool isShared, bool isStrong) const;

  //--- Order ---//

  /// Publishes and returns the clock of the lanes of `mask`; their tick
  /// advances.
  ClockRef release(LaneMask mask);
  /// The lanes of `mask` acquire `clock`.
  void acquire(LaneMask mask, const ClockRef &clock);
  /// The lanes of `mask` acquire each other's clocks.
  void synchronize(LaneMask mask);
  /// The lanes of `mask` acquire `unit` of this CTA up to `tick`.
  void acquireUnit(LaneMask mask, unsigned unit, uint32_t tick);

  //--- Control ---//

  /// Whether all of `lanes` are in the current group, which waits otherwise.
  bool converge(LaneMask lanes);
  BulkGroups &bulkOf(unsigned lane) {
    bulk.resize(kWarpLanes);
    return bulk[lane];
  }
  /// The group that is executing.
  Group &current() { return groups[running]; }
  void exitLanes(LaneMask mask);
  void branch(const Instruction &instruction, LaneMask taken);
  /// Makes groups in `state` ready.
  void wake(GroupState state);

  Cta &cta;
  const unsigned index;
  /// Lanes that have not ended.
  LaneMask live;
  std::vector<Group> groups;
  size_t running = 0;
  uint32_t tick = 1;
  ClockRef clocks[kWarpLanes];
  /// Clocks that relaxed reads have seen and the next fence acquires; and
  /// clocks that a fence lets later relaxed writes publish, within the CTA and
  /// beyond.
  struct Relaxed {
    ClockRef seen, fenced;
  };
  Relaxed inCta[kWarpLanes], onDevice[kWarpLanes];
  /// Clocks of threads of other CTAs at their arrivals at mbarriers that a lane
  /// has waited for, whatever the scopes. Order only reads and asynchronous
  /// copies before the lane's writes: these had ended when the thread arrived,
  /// whereas its writes need not be visible. Empty outside of clusters.
  ClockRef finished[kWarpLanes];
  /// cp.async copies that a thread has not waited for, and each lane's number
  /// of committed groups.
  std::vector<std::shared_ptr<LaneCopies>> copies;
  /// Recycled objects.
  std::vector<std::shared_ptr<LaneCopies>> spareCopies;
  uint32_t copyGroups[kWarpLanes] = {};
  /// Tick counter of unit kCopyUnit + index.
  uint32_t copyTick = 0;
  /// Bulk copies by lane; empty if the warp has issued none.
  std::vector<BulkGroups> bulk;
  std::vector<uint8_t> local;
  bool isQueued = false;
  uint64_t priority = 0;
  /// Registers per thread after setmaxnreg.
  unsigned registers = 0;
  /// Lanes that have arrived at this phase of the cluster's barrier, and lanes
  /// that have not waited since they arrived.
  LaneMask clusterArrived = 0, clusterOpen = 0;
  /// MMAs in flight, and whether accumulators were touched since the last
  /// wgmma.fence.
  unsigned productsInFlight = 0;
  bool needsProductFence = true;
  /// Lanes that have waited since their last tcgen05.fence::after_thread_sync,
  /// and lanes that have loaded tensor memory since their last
  /// tcgen05.fence::before_thread_sync.
  LaneMask needsTensorFence = 0, openTensorLoads = 0;
  /// Reports an error if a lane of `mask`, which signals other threads, has
  /// open tensor memory loads.
  bool checkTensorLoads(const Instruction &instruction, LaneMask mask);

private:
  /// The CTA whose shared memory has the address, of which only the offset is
  /// left; null after an error.
  Cta *findOwner(const Instruction &instruction, unsigned lane,
                 uint64_t &address);
  void reportConflict(const Instruction &instruction, unsigned lane,
                      const Place &place, uint64_t size, bool isWrite,
                      const Conflict &conflict);

  std::unique_ptr<uint8_t[]> registerFile;
  uint8_t *bases[2];
};

//===----------------------------------------------------------------------===//
// CTAs
//===----------------------------------------------------------------------===//

/// The last thread at a barrier, and its instruction.
struct Visit {
  /// By Engine::instructionId.
  uint32_t instruction = 0;
  unsigned thread = 0;
};

struct NamedBarrier {
  /// Number of threads that the barrier waits for; 0 before the first arrival.
  unsigned expected = 0, arrived = 0;
  Visit last;
  ClockRef clock;
  std::vector<std::pair<Warp *, LaneMask>> waiters;
};

struct Mbarrier {
  uint32_t expected = 0, pending = 0;
  /// Bytes announced minus bytes arrived.
  int64_t transactions = 0;
  uint64_t phase = 0;
  /// Pending arrivals of cp.async.mbarrier.arrive.
  unsigned asyncArrivals = 0;
  /// Clocks of the arrivals by threads of the CTA, and of copied bytes.
  ClockRef collecting, completed;
  /// Clocks of the arrivals of scope cluster by threads of other CTAs, which
  /// only waits of scope cluster acquire.
  ClockRef collectingOutside, completedOutside;
  /// Clocks of all arrivals by threads of other CTAs, see Warp::finished.
  ClockRef collectingFinished, completedFinished;
  /// The CTA in whose shared memory the mbarrier is.
  Cta *cta = nullptr;
  /// Number of completed phases that a wait last observed; number of phases up
  /// to the last one that a copy brought bytes to, and that copy.
  uint64_t seenPhases = 0, filledPhases = 0;
  Visit last, filler;
  /// The thread that initialized the mbarrier, and whether it then executed
  /// fence.mbarrier_init.
  unsigned initializer = 0;
  bool isFenced = false;
};

/// wgmma of four warps, see Wgmma.h.
struct Warpgroup;
/// tcgen05, see TensorMemory.h.
struct TensorMemory;

struct Cta {
  /// The CTA becomes the next one of `cluster`.
  Cta(Launch &launch, uint32_t index, uint32_t serial,
      std::shared_ptr<Cluster> cluster);
  ~Cta();

  /// Allocates a unit for an operation of the async proxy, and its tick.
  std::pair<unsigned, uint32_t> newAsyncUnit();
  /// The same for an st.async.
  std::pair<unsigned, uint32_t> newStoreUnit();
  void wakeAll(GroupState state);
  /// Joins `clock`, of a thread of `from`, and counts an arrival; false on too
  /// many arrivals. `isOfCluster`: the scope includes other CTAs.
  bool arrive(Mbarrier &barrier, uint32_t count, const ClockRef &clock,
              const Cta &from, bool isOfCluster);
  /// Counts bytes that arrived from `unit` of `from`.
  void completeTransaction(Mbarrier &barrier, int64_t bytes, const Cta &from,
                           unsigned unit, uint32_t tick);
  /// Notes an access to the shared memory from another CTA of the cluster.
  void noteOutsider(const Access &access);
  /// Such an access that no thread of this CTA knows of, after their end; null
  /// if there is none.
  const Access *findLateOutsider() const;
  void finishPhaseIfComplete(Mbarrier &barrier);

  Launch &launch;
  const uint32_t index, serial;
  /// The cluster, and the index in it.
  const std::shared_ptr<Cluster> cluster;
  const uint32_t rank;
  /// Shared memory, reused from an ended CTA of the launch if there is one.
  std::unique_ptr<Region> sharedMemory;
  Region &shared;
  std::vector<std::unique_ptr<Warp>> warps;
  unsigned liveWarps = 0;
  NamedBarrier barriers[16];
  /// By shared address.
  std::unordered_map<uint64_t, Mbarrier> mbarriers;
  /// The last access of each thread or operation of other CTAs.
  std::unordered_map<uint64_t, Access> outsiders;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  /// Null before the first allocation; and whether the allocation permit is
  /// relinquished.
  std::unique_ptr<TensorMemory> tensor;
  bool hasGivenUpTensor = false;
  uint32_t asyncTick = 0;
  unsigned nextAsyncUnit = 0, nextStoreUnit = 0;
  /// Registers that no warp holds.
  int64_t freeRegisters = 0;
  /// Whether the CTA no longer holds up the dependent launch.
  bool letsDependentsBegin = false;
  /// Whether a thread has waited for the launch before.
  bool hasWaited = false;
};

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// A submitted kernel, fill or copy.
struct Launch {
  enum class State : uint8_t { Waiting, Running, Done };

  Engine *engine = nullptr;
  uint64_t id = 0;
  State state = State::Waiting;
  std::vector<size_t> after;
  /// Whether its CTAs may start before the single preceding kernel has ended,
  /// and whether one of its threads has waited for that end.
  bool isDependent = false, hasWaited = false;
  /// Whether a CTA has let the dependent launch begin without a wait.
  bool hasLetEarly = false;
  /// Launches, by index in the batch, that are ordered before its CTAs (set at
  /// their start), and before its end (set then).
  std::vector<bool> isAfter, isOver;
  /// Launches that had ended when its CTAs could start, whether or not the CTAs
  /// know it.
  std::vector<bool> isBehind;
  /// Knowledge of those launches about CTAs that may still run. Its CTAs have
  /// it when they start, and so has any thread that knows its end.
  Clock toldBefore{0, 0}, told{0, 0};

  const Program *program = nullptr;
  const Kernel *kernel = nullptr;
  uint32_t gridCtas = 0, clusterCtas = 1, threads = 0;
  uint64_t sharedBytes = 0;
  /// Whether its CTAs wait for each other, so that all become resident.
  bool isResident = false;
  std::vector<uint8_t> params;
  /// Shared memory of ended CTAs, reset for reuse.
  std::vector<std::unique_ptr<Region>> spareShared;
  /// Clusters in the order of their start, which may have one CTA each.
  std::vector<uint32_t> order;
  size_t started = 0, ended = 0;
  /// CTAs that no longer hold up the dependent launch.
  size_t numLetting = 0;

  uint64_t fillAddress = 0, fillBytes = 0;
  uint8_t fillValue = 0;
  /// For a copy: source address, and how many steps it is delayed.
  uint64_t copiedAddress = 0;
  std::optional<uint64_t> delay;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_MACHINE_MACHINE_H
