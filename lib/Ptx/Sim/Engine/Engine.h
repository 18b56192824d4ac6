//===- Engine.h - the scheduler of the simulator ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_ENGINE_ENGINE_H
#define MOEC_LIB_PTX_SIM_ENGINE_ENGINE_H

#include "../Machine/Machine.h"
#include "Random.h"
#include "moec/Ptx/Sim/Simulator.h"

namespace moec::ptx {

/// Proxy fences of the threads of a CTA, by tick; outlives it.
struct FenceLog {
  /// For shared and for global memory, by thread.
  std::vector<std::vector<uint32_t>> shared, global;
};

/// A place that atomics, volatile and acquire or release accesses use.
struct SyncVariable {
  /// What releases with scope gpu and wider published, and those of scope cta.
  ClockRef device, cta;
  /// The same of the write before the last one.
  ClockRef previousDevice, previousCta;
  /// The last write, the value before it, and how many writes there were.
  Access writer;
  uint64_t version = 0, previous = 0;
  unsigned bytes = 0;
  /// The version that each thread has seen, by serial and number.
  std::unordered_map<uint64_t, uint64_t> seen;
};

/// "thread 37 (warp 1, lane 5)".
std::string describeThread(unsigned warp, unsigned lane);

class Engine : public OrderOracle {
public:
  explicit Engine(const SimulatorOptions &options);
  ~Engine() override;

  /// Runs all of `batch`; false after an error.
  bool run(std::vector<std::unique_ptr<Launch>> &batch);

  //--- For instructions ---//

  /// The first error counts. `place` says where.
  void fail(const std::string &text);
  bool hasFailed() const { return !failure.empty(); }
  /// "file.ptx:12: cta 3, thread 37 (warp 1, lane 5): ld.shared.b32 ...".
  std::string describe(const Warp &warp, const Instruction &instruction,
                       unsigned lane) const;
  std::string describeInstruction(uint32_t id) const;
  /// "race: a write, and a read by ... that nothing orders before it".
  std::string describeConflict(const Conflict &conflict, bool isWrite,
                               bool isAsync) const;
  /// Something has happened that others may wait for.
  void noteWrite();
  /// What %globaltimer and the like say; who asks gives up some time.
  uint64_t readTime() {
    asksTime = true;
    return statistics.warpInstructions + skippedTime;
  }
  void noteProgress() {
    idleInstructions = 0;
    numSkips = 0;
    ++progress;
  }
  void start(std::shared_ptr<AsyncOperation> operation);
  /// Does all of an operation, piece by piece; false after an error.
  bool finish(AsyncOperation &operation);
  void queue(Warp &warp);
  /// CTAs of the launch that depends on the CTA's may begin, as far as it is
  /// concerned.
  void letDependentsBegin(Cta &cta);
  /// Lanes of `mask` learn all that the launch before did; false if they have
  /// to wait for its end.
  bool waitForLaunchBefore(Warp &warp, LaneMask mask);

  bool isBefore(const Access &earlier, const Clock &reader) const override;
  bool isBehind(uint32_t earlier, uint32_t later) const override;
  bool isFenced(const Access &write, bool isShared,
                const Clock &reader) const override;
  FenceLog &fenceLog(const Cta &cta);
  SyncVariable &syncVariable(const Cta &cta, bool isShared, uint64_t address);

  const SimulatorOptions options;
  Random random;
  GlobalMemory memory;
  Statistics statistics;
  std::string failure;
  std::vector<std::unique_ptr<Program>> programs;
  uint32_t nextInstructionId = 0;
  /// Serials below are ordered before all that runs.
  uint32_t horizon = 1;

private:
  /// What copies between kernels have in place of an instruction.
  static constexpr uint32_t kCopyInstruction = ~uint32_t(0);

  enum class Style : uint8_t { Fair, Random, Priorities };

  //--- Launches ---//
  using Batch = std::vector<std::unique_ptr<Launch>>;

  void chooseStyle();
  bool isReady(const Launch &launch) const;
  bool startReady();
  bool isLate(Launch &copy);
  /// Lets late copies be done; false if there are none.
  bool hurryCopies();
  bool checkCopy(Launch &launch, Region &from, Region &to);
  void write(Launch &launch);
  void begin(Launch &launch);
  void end(Launch &launch);
  void addAllOver(std::vector<bool> &set, const Launch &launch) const;
  void dropOver(Clock &told, const std::vector<bool> &over) const;
  bool isAwaited() const;
  bool admit();
  bool admitAwaited();
  /// Of a CTA with that %ctaid, or of a copy.
  uint32_t addSerial(Launch &launch, uint32_t index);
  void addCta(Launch &launch);
  void keepTold(const Cta &cta);
  void retire(Cta &cta);
  /// Reports what a CTA that ends leaves behind; false if there is something.
  bool checkLeaks(Cta &cta);
  void reset();

  /// Whether the kernel of CTA `serial` is over for whoever has the clock.
  bool isOver(uint32_t serial, const Clock &reader) const;
  /// Whether a kernel that is over for them was told of the access.
  bool isTold(const Access &earlier, const Clock &reader) const;

  //--- Schedule ---//
  void step();
  Warp *choose();
  void runWarp(Warp &warp);
  size_t chooseGroup(Warp &warp);
  bool mergeAt(Warp &warp, size_t index);
  void advanceAsync();
  void unblock();
  bool passTime();
  bool failPolls();
  bool wakeSleepers();
  void reportDeadlock();

  /// What run() runs.
  Batch *batch = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Warp *> runnable;
  /// Warps of loops that have seen the latest of what they ask for.
  std::vector<Warp *> sleepers;
  std::vector<std::shared_ptr<AsyncOperation>> operations;
  /// The number of operations at which those that are done are dropped.
  size_t compactAt = 64;
  std::vector<Launch *> active;
  /// CTAs that others wait for, of resident launches, which have yet to begin.
  uint64_t numAwaited = 0;
  /// The launch of serial `horizon + i`.
  std::vector<Launch *> launchOfSerial;
  /// Its %ctaid.
  std::vector<uint32_t> indexOfSerial;
  std::unordered_map<uint32_t, FenceLog> fenceLogs;
  std::unordered_map<uint64_t, SyncVariable> globalSync;
  std::unordered_map<uint64_t, SyncVariable> sharedSync;
  uint32_t nextSerial = 1;
  /// Instructions since something happened that others may wait for.
  uint64_t idleInstructions = 0;
  /// Whether somebody has read the time in this run, how much went by while
  /// nobody got on, and how often since somebody did.
  bool asksTime = false;
  uint64_t skippedTime = 0;
  unsigned numSkips = 0;
  /// Counts what happened, and what had when waits were last made to fail.
  uint64_t progress = 0, progressAtFail = 0;
  unsigned failedRounds = 0;
  uint64_t turns = 0;
  Style style = Style::Fair;
  unsigned quantum = 64, asyncDelay = 8;
};

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_ENGINE_ENGINE_H
