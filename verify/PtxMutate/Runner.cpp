//===- Runner.cpp - runs and judges mutants ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Runner.h"

#include "Rules/Rules.h"

#include "../../runtime/src/support/Threads.h"
#include "PtxSim/Engine/Random.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using moert::Result;
using moert::Status;

const char *mutate::outcomeName(Outcome outcome) {
  static const char *const names[] = {"killed", "equivalent", "missed"};
  return names[size_t(outcome)];
}

//===----------------------------------------------------------------------===//
// One run
//===----------------------------------------------------------------------===//

namespace {

/// All memory after a launch. Each allocation has its bytes, followed by one
/// flag per byte: whether it was written.
using Memory = std::vector<std::vector<uint8_t>>;

struct RunResult {
  Status status;
  Memory memory;
  Work work;
  uint64_t warpInstructions = 0;
};

} // namespace

static Status restore(Simulator &simulator, const Launch &launch) {
  std::vector<uint64_t> unused;
  for (const Allocation &allocation : launch.memory) {
    Result<uint64_t> address = simulator.allocate(
        allocation.bytes, allocation.alignment,
        "an allocation of " + std::to_string(allocation.bytes) + " bytes");
    if (!address)
      return address.status();
    if (*address != allocation.address)
      return moert::internalError("kernel '" + launch.kernel +
                                  "': its module has variables in global "
                                  "memory, which move the other memory");
    if (!allocation.isUsed) {
      unused.push_back(*address);
      continue;
    }
    // Uninitialized bytes are not written.
    auto begin = allocation.initialized.begin(),
         end = allocation.initialized.end();
    for (auto at = std::find(begin, end, 1); at != end;) {
      auto last = std::find(at, end, 0);
      if (Status status = simulator.write(*address + uint64_t(at - begin),
                                          allocation.data.data() + (at - begin),
                                          size_t(last - at));
          !status)
        return status;
      at = std::find(last, end, 1);
    }
  }
  for (uint64_t address : unused)
    if (Status status = simulator.release(address); !status)
      return status;
  return Status::ok();
}

static RunResult runOnce(const RawModule &module, const Launch &launch,
                         int64_t moreCtas, uint64_t seed,
                         uint64_t maxWarpInstructions) {
  RunResult result;
  SimulatorOptions options;
  options.seed = seed;
  options.maxWarpInstructions = maxWarpInstructions;
  Simulator simulator(options);
  Result<LoadedModule *> loaded = simulator.load(module, launch.kernel);
  result.status = loaded.status();
  if (result.status)
    result.status = restore(simulator, launch);
  moert::LaunchDims dims = launch.dims;
  dims.grid += moreCtas;
  if (result.status)
    result.status =
        simulator.launch(**loaded, launch.kernel, dims, launch.params);
  result.work = simulator.statistics().work;
  result.warpInstructions = simulator.statistics().warpInstructions;
  for (const Allocation &allocation : launch.memory) {
    if (!result.status || !allocation.isUsed)
      continue;
    std::vector<uint8_t> bytes(2 * allocation.bytes);
    result.status =
        simulator.read(bytes.data(), allocation.address, allocation.bytes);
    if (result.status)
      result.status =
          simulator.readInitialized(bytes.data() + allocation.bytes,
                                    allocation.address, allocation.bytes);
    result.memory.push_back(std::move(bytes));
  }
  return result;
}

/// The check that a message of the simulator names.
static std::string checkOf(const std::string &message) {
  static const std::pair<const char *, const char *> checks[] = {
      {"race:", "race"},
      {"unfenced", "proxy"},
      {"reads memory that was never written", "uninitialized"},
      {"out of bounds", "bounds"},
      {"outside of", "bounds"},
      {"is not a multiple of", "alignment"},
      {"deadlock", "deadlock"},
      {"instructions of warps", "time"},
      {"has ended with", "leak"},
      {"wgmma", "wgmma"},
  };
  for (const auto &[text, check] : checks)
    if (message.find(text) != std::string::npos)
      return check;
  return "rule of the instruction";
}

//===----------------------------------------------------------------------===//
// All runs of a kernel
//===----------------------------------------------------------------------===//

namespace {

/// Calls `function` for each number below `count`, on `numThreads` threads.
void inParallel(unsigned numThreads, size_t count,
                const std::function<void(size_t)> &function) {
  std::atomic<size_t> next{0};
  moert::shareWork(numThreads, [&] {
    for (size_t i = next++; i < count; i = next++)
      function(i);
  });
}

/// A launch of the kernel as it is: the memory that it leaves, the work (copies
/// and products) that it does, and the instructions that a mutant may take.
/// Runs when the first mutant needs it: a sample of mutants needs few launches.
struct Original {
  std::once_flag once;
  Status status;
  Memory memory;
  Work work;
  uint64_t budget = 0;
};

/// A kernel, its launches, and its mutants.
class Trial {
public:
  Trial(const Recording &recording, const std::string &kernel,
        const RunnerOptions &options)
      : module(*recording.modules.at(kernel)), flow(module.kernels[0]),
        options(options) {
    for (const Launch &launch : recording.launches)
      if (launch.kernel == kernel)
        launches.push_back(&launch);
    originals = std::vector<Original>(launches.size());
  }

  std::vector<Mutant> choose() const;
  void keepSample(std::vector<Mutant> &mutants, size_t count) const;
  /// Starts with launch number `first`, and stores there the launch that killed
  /// the mutant, because it is likely to kill the next mutant as well. Fails
  /// where the original does.
  Result<Verdict> judge(const Mutant &mutant, std::atomic<size_t> &first);

private:
  const Original &getOriginal(size_t index);
  Status run(const Launch &launch, Original &original) const;

  const RawModule &module;
  const Flow flow;
  const RunnerOptions &options;
  std::vector<const Launch *> launches;
  /// Per launch.
  std::vector<Original> originals;
};

} // namespace

const Original &Trial::getOriginal(size_t index) {
  Original &original = originals[index];
  std::call_once(original.once,
                 [&] { original.status = run(*launches[index], original); });
  return original;
}

Status Trial::run(const Launch &launch, Original &original) const {
  uint64_t most = 0;
  for (uint64_t seed = 0; seed < std::max(options.seeds, options.indexSeeds);
       ++seed) {
    // Extra CTAs without work must change nothing.
    RunResult result =
        runOnce(module, launch, seed ? launch.moreCtas : 0, seed, UINT64_MAX);
    if (!result.status)
      return result.status.withContext("the original, seed " +
                                       std::to_string(seed));
    most = std::max(most, result.warpInstructions);
    if (seed == 0) {
      original.memory = std::move(result.memory);
      original.work = result.work;
      continue;
    }
    bool hasBits = result.memory == original.memory;
    if (hasBits && result.work == original.work)
      continue;
    return moert::internalError(
        std::string("the ") + (hasBits ? "copies or products" : "bits") +
        " of the original depend on the seed, or on CTAs without work: seed " +
        std::to_string(seed));
  }
  // A mutant that takes much longer hangs.
  constexpr uint64_t kTimes = 3, kMore = 50'000;
  original.budget = most * kTimes + kMore;
  return Status::ok();
}

std::vector<Mutant> Trial::choose() const {
  std::vector<Mutant> mutants = options.swapsProducts
                                    ? listSumOrderMutants(module.kernels[0])
                                    : listMutants(module.kernels[0]);
  mutants.erase(std::remove_if(mutants.begin(), mutants.end(),
                               [&](const Mutant &mutant) {
                                 return mutant.kind.find(options.kind) ==
                                        std::string::npos;
                               }),
                mutants.end());
  if (options.sample != 0)
    keepSample(mutants, options.sample);
  if (options.indexSample == 0)
    return mutants;
  std::vector<Mutant> kept, indices;
  for (Mutant &mutant : mutants)
    (mutant.group == Group::Index ? indices : kept)
        .push_back(std::move(mutant));
  keepSample(indices, options.indexSample);
  kept.insert(kept.end(), indices.begin(), indices.end());
  return kept;
}

/// Keeps a random sample of `count` mutants.
void Trial::keepSample(std::vector<Mutant> &mutants, size_t count) const {
  if (count >= mutants.size())
    return;
  Random random(options.sampleSeed);
  for (size_t i = 0; i < count; ++i)
    std::swap(mutants[i], mutants[i + random.below(mutants.size() - i)]);
  mutants.resize(count);
}

Result<Verdict> Trial::judge(const Mutant &mutant, std::atomic<size_t> &first) {
  const size_t begin = first;
  Verdict verdict;
  verdict.mutant = mutant;
  if (std::string rule = proveEquivalent(flow, mutant); !rule.empty()) {
    verdict.outcome = Outcome::Equivalent;
    verdict.by = rule;
    return verdict;
  }
  RawModule mutated = module;
  mutated.lines.clear();
  mutant.apply(mutated.kernels[0]);
  bool dependsOnSchedule =
      mutant.group != Group::Index && mutant.group != Group::Order;
  uint64_t seeds = dependsOnSchedule ? options.seeds : options.indexSeeds;
  for (uint64_t seed = 0; seed < seeds; ++seed)
    for (size_t j = 0; j < launches.size(); ++j) {
      size_t i = (begin + j) % launches.size();
      const Original &original = getOriginal(i);
      if (!original.status)
        return original.status;
      RunResult result = runOnce(mutated, *launches[i], launches[i]->moreCtas,
                                 seed, original.budget);
      bool hasBits = result.status && result.memory == original.memory;
      if (hasBits && result.work == original.work)
        continue;
      verdict.outcome = Outcome::Killed;
      verdict.by = hasBits         ? "work"
                   : result.status ? "bits"
                                   : checkOf(result.status.message());
      verdict.seed = seed;
      verdict.inputs = launches[i]->inputs;
      verdict.message = result.status.message();
      first = i;
      return verdict;
    }
  verdict.by = proveEquivalent(flow, mutant, /*hasSurvived=*/true);
  if (!verdict.by.empty())
    verdict.outcome = Outcome::Equivalent;
  return verdict;
}

Result<std::vector<Verdict>> mutate::runMutants(const Recording &recording,
                                                const std::string &kernel,
                                                const RunnerOptions &options) {
  if (!recording.modules.count(kernel))
    return moert::notFound("no kernel '" + kernel + "' in the package");
  Trial trial(recording, kernel, options);
  std::vector<Mutant> mutants = trial.choose();
  std::vector<Verdict> verdicts(mutants.size());
  std::vector<Status> statuses(mutants.size());
  std::atomic<size_t> first{0}, done{0};
  inParallel(options.threads, mutants.size(), [&](size_t i) {
    if (Result<Verdict> verdict = trial.judge(mutants[i], first))
      verdicts[i] = std::move(*verdict);
    else
      statuses[i] = verdict.status();
    constexpr size_t kStep = 50;
    if (size_t count = ++done; options.showsProgress && count % kStep == 0)
      std::fprintf(stderr, "%s: %zu of %zu mutants\n", kernel.c_str(), count,
                   mutants.size());
  });
  for (Status &status : statuses)
    if (!status)
      return std::move(status);
  return verdicts;
}
