//===- Engine.h - the scheduler of the simulator ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_ENGINE_H
#define MOEC_VERIFY_PTXSIM_ENGINE_ENGINE_H

#include "../Machine/Machine.h"
#include "Random.h"
#include "moec/PtxSim/Simulator.h"

namespace moec::ptx {

/// Ticks of the proxy fences of a CTA's threads; outlives the CTA.
struct FenceLog {
  /// Fences of shared and of global memory, by thread.
  std::vector<std::vector<uint32_t>> shared, global;
};

/// A memory location that atomic, volatile, acquire or release accesses use.
struct SyncVariable {
  /// Clocks that releases published: at scope gpu and wider, and at scope cta.
  ClockRef device, cta;
  /// Both clocks as they were before the last write.
  ClockRef previousDevice, previousCta;
  /// The last write, the number of writes, and the value before the last
  /// write.
  Access writer;
  uint64_t version = 0, previous = 0;
  unsigned bytes = 0;
  /// The version that each thread has seen, by CTA serial and thread number.
  std::unordered_map<uint64_t, uint64_t> seen;
};

/// Formats a thread as "thread 37 (warp 1, lane 5)".
std::string describeThread(unsigned warp, unsigned lane);

class Engine : public OrderOracle {
public:
  explicit Engine(const SimulatorOptions &options);
  ~Engine() override;

  /// Runs all of `batch`; false after an error.
  bool run(std::vector<std::unique_ptr<Launch>> &batch);

  //--- For instructions ---//

  /// Records an error; only the first one counts. `place` is its location.
  void fail(const std::string &text);
  bool hasFailed() const { return !failure.empty(); }
  /// Formats as "file.ptx:12: cta 3, thread 37 (warp 1, lane 5): ld.shared.b32
  /// ...".
  std::string describe(const Warp &warp, const Instruction &instruction,
                       unsigned lane) const;
  std::string describeInstruction(uint32_t id) const;
  /// Formats as "race: a write, and a read by ... that nothing orders before
  /// it".
  std::string describeConflict(const Conflict &conflict, bool isWrite,
                               bool isAsync) const;
  /// Notes an event that other warps may be waiting for.
  void noteWrite();
  /// The value of %globaltimer and the like. Readers are expected to time out,
  /// so passTime() may advance it.
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
  /// Runs an operation to its end; false after an error.
  bool finish(AsyncOperation &operation);
  void queue(Warp &warp);
  /// Lets the dependent launch start, as far as this CTA is concerned.
  void letDependentsBegin(Cta &cta);
  /// Lanes of `mask` acquire all that the preceding launch did; false if they
  /// must wait for its end.
  bool waitForLaunchBefore(Warp &warp, LaneMask mask);

  bool isBefore(const Access &earlier, const Clock &reader) const override;
  bool isBehind(uint32_t earlier, uint32_t later) const override;
  bool isFenced(const Access &write, bool isShared,
                const Clock &reader) const override;
  FenceLog &fenceLog(const Cta &cta);
  /// `owner`: the CTA that has the memory; null for global memory.
  SyncVariable &syncVariable(const Cta *owner, uint64_t address);

  const SimulatorOptions options;
  Random random;
  GlobalMemory memory;
  Statistics statistics;
  std::string failure;
  std::vector<std::unique_ptr<Program>> programs;
  uint32_t nextInstructionId = 0;
  /// CTAs with smaller serials are ordered before all that runs.
  uint32_t horizon = 1;

private:
  /// Stands for the instruction of copies between kernels.
  static constexpr uint32_t kCopyInstruction = ~uint32_t(0);

  enum class Style : uint8_t { Fair, Random, Priorities };

  //--- Launches ---//
  using Batch = std::vector<std::unique_ptr<Launch>>;

  void chooseStyle();
  bool isReady(const Launch &launch) const;
  bool startReady();
  bool isLate(Launch &copy);
  /// Completes delayed copies; false if there are none.
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
  /// A new serial, for a CTA with this %ctaid or for a copy.
  uint32_t addSerial(Launch &launch, uint32_t index);
  void addCta(Launch &launch, const std::shared_ptr<Cluster> &cluster);
  /// Makes all CTAs of the next cluster resident.
  void addCluster(Launch &launch);
  void keepTold(const Cta &cta);
  void retire(Cta &cta);
  /// Reports what an ending CTA leaves unfinished; false if there is anything.
  bool checkLeaks(Cta &cta);
  void reset();

  /// Whether `reader` knows that the kernel of CTA `serial` has ended.
  bool isOver(uint32_t serial, const Clock &reader) const;
  /// Whether an ended kernel that `reader` knows of had acquired the access.
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

  /// The batch that run() executes.
  Batch *batch = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Warp *> runnable;
  /// Warps in polling loops that have seen the latest value of what they poll.
  std::vector<Warp *> sleepers;
  std::vector<std::shared_ptr<AsyncOperation>> operations;
  /// Number of operations at which completed ones are removed.
  size_t compactAt = 64;
  std::vector<Launch *> active;
  /// CTAs of resident launches that have yet to start; others may wait for
  /// them.
  uint64_t numAwaited = 0;
  /// The launch of CTA serial `horizon + i`.
  std::vector<Launch *> launchOfSerial;
  /// The %ctaid of CTA serial `horizon + i`.
  std::vector<uint32_t> indexOfSerial;
  std::unordered_map<uint32_t, FenceLog> fenceLogs;
  std::unordered_map<uint64_t, SyncVariable> globalSync;
  std::unordered_map<uint64_t, SyncVariable> sharedSync;
  uint32_t nextSerial = 1;
  /// Instructions since the last event that others may wait for.
  uint64_t idleInstructions = 0;
  /// Whether a thread has read the time in this run, the time that was skipped
  /// while no thread made progress, and how often since the last progress.
  bool asksTime = false;
  uint64_t skippedTime = 0;
  unsigned numSkips = 0;
  /// Number of progress events, and its value when waits were last made to
  /// fail.
  uint64_t progress = 0, progressAtFail = 0;
  unsigned failedRounds = 0;
  uint64_t turns = 0;
  Style style = Style::Fair;
  unsigned quantum = 64, asyncDelay = 8;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_ENGINE_H
