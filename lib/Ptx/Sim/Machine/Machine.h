//===- Machine.h - warps, CTAs and what they wait for -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_MACHINE_MACHINE_H
#define MOEC_LIB_PTX_SIM_MACHINE_MACHINE_H

#include "Memory.h"

#include <unordered_map>

namespace moec::ptx {

class Engine;
struct Cta;
struct Launch;

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

/// Where generic addresses of other spaces begin. A CTA is a cluster of its
/// own, so that shared::cluster addresses are shared::cta addresses.
inline constexpr uint64_t kSharedWindow = 0x0100'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x0200'0000'0000;
inline constexpr uint64_t kParamWindow = 0x0300'0000'0000;
inline constexpr uint64_t kWindowBytes = 0x0100'0000'0000;
/// Shared memory begins behind what the system keeps for itself.
inline constexpr uint64_t kFirstSharedAddress = 1024;

//===----------------------------------------------------------------------===//
// Asynchronous work
//===----------------------------------------------------------------------===//

/// An operation that goes on beside the thread that started it. Whenever the
/// schedule likes, a piece of it is done.
class AsyncOperation {
public:
  virtual ~AsyncOperation();
  /// Does a piece of it; false after an error.
  virtual bool advance(Engine &engine) = 0;
  virtual bool isDone() const = 0;
  /// Whether it still reads or writes the shared memory of its CTA.
  virtual bool usesShared() const = 0;

  Cta *cta = nullptr;
  /// The instruction that began it, by Engine::instructionId.
  uint32_t instruction = 0;
};

class LaneCopies;
class BulkCopy;

/// The bulk copies of a thread, in groups.
struct BulkGroups {
  std::vector<std::shared_ptr<BulkCopy>> open;
  /// Few at a time: the first ones go.
  std::vector<std::vector<std::shared_ptr<BulkCopy>>> committed;
  /// Ticks of units whose writes are done, which the thread has not asked for.
  std::map<unsigned, uint32_t> written;
};

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

enum class GroupState : uint8_t {
  Ready,
  /// Waits for other lanes of the warp to come here.
  Converge,
  /// Waits at a named barrier.
  Barrier,
  /// Waits for a phase of an mbarrier.
  Mbarrier,
  /// Waits for registers.
  Registers,
  /// Waits for the other warps of its warpgroup.
  Warpgroup,
  /// Waits for the end of the launch before.
  Launch,
};

/// Lanes of a warp that run together.
struct Group {
  uint32_t pc = 0;
  LaneMask lanes = 0;
  GroupState state = GroupState::Ready;
  /// A wait has to fail although it could go on waiting.
  bool mustFail = false;
};

/// A warp of a CTA that is resident.
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

  /// Reports an error of `lane` at `instruction`; the first one counts.
  Step fail(const Instruction &instruction, unsigned lane,
            const std::string &text);

  //--- Memory ---//

  /// Finds memory and checks bounds and alignment. Null after an error. What
  /// is not of a region (local, param) has a null `region`.
  struct Place {
    uint8_t *bytes = nullptr;
    Region *region = nullptr;
    uint64_t address = 0;
  };
  Place locate(const Instruction &instruction, unsigned lane, Space space,
               uint64_t address, uint64_t size, uint64_t alignment);
  /// Checks order and initialization of a read or write by `lanes`, of which
  /// `lane` is one; false after an error.
  bool checkRead(const Instruction &instruction, unsigned lane, LaneMask lanes,
                 const Place &place, uint64_t size, bool isStrong = false);
  bool checkWrite(const Instruction &instruction, unsigned lane, LaneMask lanes,
                  const Place &place, uint64_t size, bool isStrong = false);
  /// Checks that the last write is ordered before `lane`; leaves no trace.
  bool checkKnown(const Instruction &instruction, unsigned lane,
                  const Place &place, uint64_t size);
  /// The same for a write that goes on after the instruction, by `unit`.
  bool checkLateWrite(const Instruction &instruction, unsigned lane,
                      unsigned unit, uint32_t tick, const Place &place,
                      uint64_t size);
  Accessor accessor(const Instruction &instruction, unsigned lane,
                    LaneMask lanes, bool isShared, bool isStrong) const;

  //--- Order ---//

  /// What lanes of `mask` publish; their tick advances.
  ClockRef release(LaneMask mask);
  /// Lanes of `mask` learn `clock`.
  void acquire(LaneMask mask, const ClockRef &clock);
  /// Lanes of `mask` learn all of each other.
  void synchronize(LaneMask mask);
  /// `unit` of this CTA at `tick` has ended for the lanes of `mask`.
  void acquireUnit(LaneMask mask, unsigned unit, uint32_t tick);

  //--- Control ---//

  /// Whether all of `lanes` are in `group`; else it waits for them.
  bool converge(LaneMask lanes);
  BulkGroups &bulkOf(unsigned lane) {
    bulk.resize(kWarpLanes);
    return bulk[lane];
  }
  /// The group that runs now.
  Group &current() { return groups[running]; }
  void exitLanes(LaneMask mask);
  void branch(const Instruction &instruction, LaneMask taken);
  /// Makes groups of `state` ready.
  void wake(GroupState state);

  Cta &cta;
  const unsigned index;
  /// Lanes that have not ended.
  LaneMask live;
  std::vector<Group> groups;
  size_t running = 0;
  uint32_t tick = 1;
  ClockRef clocks[kWarpLanes];
  /// What relaxed reads have seen, to be learned at the next fence, and what a
  /// fence lets the relaxed writes after it publish: within the CTA, and
  /// beyond.
  struct Relaxed {
    ClockRef seen, fenced;
  };
  Relaxed inCta[kWarpLanes], onDevice[kWarpLanes];
  /// Copies by cp.async that some thread has not waited for, and the number of
  /// groups that each lane has committed.
  std::vector<std::shared_ptr<LaneCopies>> copies;
  /// Objects to be used again.
  std::vector<std::shared_ptr<LaneCopies>> spareCopies;
  uint32_t copyGroups[kWarpLanes] = {};
  /// Counts the copies of unit kCopyUnit + index.
  uint32_t copyTick = 0;
  /// Of each lane, in a warp that has begun such copies; else empty.
  std::vector<BulkGroups> bulk;
  std::vector<uint8_t> local;
  bool isQueued = false;
  uint64_t priority = 0;
  /// Registers per thread, as setmaxnreg left it.
  unsigned registers = 0;
  /// Products that this warp has begun and not waited for, and whether their
  /// registers were touched since the last wgmma.fence.
  unsigned productsInFlight = 0;
  bool needsProductFence = true;
  /// Lanes that have waited for others since their last
  /// tcgen05.fence::after_thread_sync, and that have loaded tensor memory since
  /// their last tcgen05.fence::before_thread_sync.
  LaneMask needsTensorFence = 0, openTensorLoads = 0;
  /// Reports an error if one of `mask` has; it tells others something.
  bool checkTensorLoads(const Instruction &instruction, LaneMask mask);

private:
  void reportConflict(const Instruction &instruction, unsigned lane,
                      const Place &place, uint64_t size, bool isWrite,
                      const Conflict &conflict);

  std::unique_ptr<uint8_t[]> registerFile;
  uint8_t *bases[2];
};

//===----------------------------------------------------------------------===//
// CTAs
//===----------------------------------------------------------------------===//

/// Who used a barrier, and where.
struct Visit {
  /// By Engine::instructionId.
  uint32_t instruction = 0;
  unsigned thread = 0;
};

struct NamedBarrier {
  /// Threads that it waits for; 0 while nobody has come.
  unsigned expected = 0, arrived = 0;
  Visit last;
  ClockRef clock;
  std::vector<std::pair<Warp *, LaneMask>> waiters;
};

struct Mbarrier {
  uint32_t expected = 0, pending = 0;
  /// Bytes announced less bytes arrived.
  int64_t transactions = 0;
  uint64_t phase = 0;
  /// Arrivals that wait for cp.async of their thread.
  unsigned asyncArrivals = 0;
  ClockRef collecting, completed;
  /// Phases that had ended when a wait last saw one end; those up to the last
  /// one that a copy brought bytes to, and that copy.
  uint64_t seenPhases = 0, filledPhases = 0;
  Visit last, filler;
  /// The thread that has initialized it, and whether fence.mbarrier_init by
  /// that thread came after.
  unsigned initializer = 0;
  bool isFenced = false;
};

/// wgmma of four warps, see Wgmma.h.
struct Warpgroup;
/// tcgen05, see TensorMemory.h.
struct TensorMemory;

struct Cta {
  Cta(Launch &launch, uint32_t index, uint32_t serial);
  ~Cta();

  /// An unit for an operation of the async proxy, and its tick.
  std::pair<unsigned, uint32_t> newAsyncUnit();
  void wakeAll(GroupState state);
  /// Adds what `clock` knows and counts an arrival; false if too many came.
  bool arrive(Mbarrier &barrier, uint32_t count, const ClockRef &clock);
  /// Bytes have come in from `unit`.
  void completeTransaction(Mbarrier &barrier, int64_t bytes, unsigned unit,
                           uint32_t tick);
  void finishPhaseIfComplete(Mbarrier &barrier);

  Launch &launch;
  const uint32_t index, serial;
  /// That of a CTA of the launch that has ended, if there is one.
  std::unique_ptr<Region> sharedMemory;
  Region &shared;
  std::vector<std::unique_ptr<Warp>> warps;
  unsigned liveWarps = 0;
  NamedBarrier barriers[16];
  /// By shared address.
  std::unordered_map<uint64_t, Mbarrier> mbarriers;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  /// Null while nobody has taken any, and whether nobody may any more.
  std::unique_ptr<TensorMemory> tensor;
  bool hasGivenUpTensor = false;
  uint32_t asyncTick = 0;
  unsigned nextAsyncUnit = 0;
  /// Registers that nobody holds.
  int64_t freeRegisters = 0;
  /// It does not hold up the launch that depends on its own.
  bool letsDependentsBegin = false;
};

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// A kernel, a fill of memory or a copy that was submitted.
struct Launch {
  enum class State : uint8_t { Waiting, Running, Done };

  Engine *engine = nullptr;
  uint64_t id = 0;
  State state = State::Waiting;
  std::vector<size_t> after;
  /// Whether its CTAs may begin before the one kernel that it comes after has
  /// ended; and whether one of its threads has waited for that.
  bool isDependent = false, hasWaited = false;
  /// By index in the batch: all that is ordered before its CTAs, set when they
  /// begin; and before its end, set then.
  std::vector<bool> isAfter, isOver;
  /// All that has ended when its CTAs may begin, whether they know of it or
  /// not.
  std::vector<bool> isBehind;
  /// What those were told by CTAs that may still run: known to its CTAs when
  /// they begin, and to whoever knows its end.
  Clock toldBefore{0, 0}, told{0, 0};

  const Program *program = nullptr;
  const Kernel *kernel = nullptr;
  uint32_t gridCtas = 0, threads = 0;
  uint64_t sharedBytes = 0;
  /// Whether its CTAs wait for each other, so that all become resident.
  bool isResident = false;
  std::vector<uint8_t> params;
  /// Shared memory of CTAs that have ended, as new.
  std::vector<std::unique_ptr<Region>> spareShared;
  /// CTAs in the order of their start.
  std::vector<uint32_t> order;
  size_t started = 0, ended = 0;
  /// CTAs that do not hold up who depends on this launch.
  size_t numLetting = 0;

  uint64_t fillAddress = 0, fillBytes = 0;
  uint8_t fillValue = 0;
  /// Of a copy: where it is from, and how many steps it is late.
  uint64_t copiedAddress = 0;
  std::optional<uint64_t> delay;
};

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_MACHINE_MACHINE_H
