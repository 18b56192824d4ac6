//===- Simulator.h - runs PTX without a GPU ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A functional simulator for the PTX that the compiler emits. Runs every thread
// of every CTA, and checks races, fences and barriers.
// docs/design/ptx-simulator.md describes the model.

#ifndef MOEC_PTXSIM_SIMULATOR_H
#define MOEC_PTXSIM_SIMULATOR_H

#include "moert/Device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moec::ptx {

/// Limits of the simulated GPU; those of sm_90a unless stated otherwise.
/// moec/Support/Parts.h has the same numbers but needs LLVM; a test compares
/// the two.
struct SimulatedLimits {
  static constexpr int64_t kMultiprocessors = 132;
  static constexpr int64_t kSharedBytesPerCta = 227 * 1024;
  static constexpr int64_t kRegistersPerMultiprocessor = 64 * 1024;
  static constexpr int64_t kRegistersPerThread = 255;
};

struct SimulatorOptions {
  /// Decides all that hardware leaves open: the order of warps, CTAs and
  /// kernels, when asynchronous work completes, which lane is elected, spurious
  /// failures of waits. Correct kernels give the same bits for every seed.
  uint64_t seed = 0;
  /// Reports unordered conflicting accesses and missing proxy fences.
  bool checkRaces = true;
  /// Reports reads of shared and global memory that was never written.
  bool checkInitialized = true;
  /// Resident CTAs of all kernels together. A CTA that waits for one that has
  /// not started makes no progress.
  unsigned residentCtas = 4;
  /// Most CTAs of a kernel whose CTAs wait for each other (`dims.resident`);
  /// all of them become resident.
  unsigned maxResidentCtas = SimulatedLimits::kMultiprocessors;
  /// Warp instructions, over all runs, after which a run is aborted.
  uint64_t maxWarpInstructions = UINT64_MAX;
};

struct KernelInfo {
  std::string name;
  /// Size and offset of each parameter in launch()'s buffer.
  struct Param {
    size_t offset = 0, size = 0;
  };
  std::vector<Param> params;
  size_t paramBytes = 0;
  /// The value of `.reqntid`; 0 if absent.
  unsigned requiredThreads = 0;
  size_t staticShared = 0;
  size_t numInstructions = 0;
};

/// Amounts of work that do not depend on the schedule.
struct Work {
  /// Asynchronous copies between global and shared memory: one for each
  /// thread's cp.async (also of zero bytes) and for each bulk copy. Bytes read;
  /// those of tensor boxes include elements out of bounds.
  uint64_t copies = 0, copiedBytes = 0;
  /// Multiplications by mma and wgmma.
  uint64_t products = 0;

  bool operator==(const Work &other) const {
    return copies == other.copies && copiedBytes == other.copiedBytes &&
           products == other.products;
  }
};

/// Totals over all launches so far.
struct Statistics {
  uint64_t launches = 0, ctas = 0;
  Work work;
  /// Instructions times executing threads, without failed polls.
  uint64_t threadInstructions = 0;
  uint64_t warpInstructions = 0;
  /// Host seconds in run().
  double seconds = 0;
};

struct RawModule;

/// The kernels of a loaded module, which the simulator owns.
class LoadedModule {
public:
  virtual ~LoadedModule();
  virtual const std::vector<KernelInfo> &kernels() const = 0;
  /// Null if no kernel has that name.
  const KernelInfo *find(const std::string &name) const;
};

/// Identifies submitted work.
using WorkId = uint64_t;

/// Memory, modules and work of one simulated GPU. Not thread-safe.
class Simulator {
public:
  explicit Simulator(SimulatorOptions options = {});
  ~Simulator();

  /// Loads the kernels of PTX text; `fileName` is for messages. An unknown
  /// instruction is an error that names its line.
  moert::Result<LoadedModule *> load(const std::string &text,
                                     const std::string &fileName);
  /// Loads a module that is already parsed.
  moert::Result<LoadedModule *> load(const RawModule &module,
                                     const std::string &fileName);

  /// Allocates uninitialized memory and returns its address. `name` is for
  /// messages.
  moert::Result<uint64_t> allocate(size_t bytes, size_t alignment,
                                   const std::string &name);
  moert::Status release(uint64_t address);
  /// Immediate host accesses. No work may be pending.
  moert::Status write(uint64_t address, const void *data, size_t bytes);
  moert::Status read(void *data, uint64_t address, size_t bytes) const;
  /// One flag per byte: whether it has been written.
  moert::Status readInitialized(uint8_t *flags, uint64_t address,
                                size_t bytes) const;
  /// Fails unless the bytes lie in one allocation.
  moert::Status checkRange(uint64_t address, size_t bytes) const;

  /// Fails unless all CTAs of the launch can be resident at once.
  moert::Status checkResident(const std::string &kernel,
                              const moert::LaunchDims &dims) const;

  /// Adds a kernel that may run once all of `after` are done, in any order with
  /// other work. `params` are laid out as KernelInfo says. A dependent kernel
  /// (`dims.dependent`) after one other kernel may start once every CTA of that
  /// one has executed griddepcontrol.launch_dependents or ended.
  moert::Result<WorkId> submit(const LoadedModule &module,
                               const std::string &kernel,
                               const moert::LaunchDims &dims,
                               const std::vector<uint8_t> &params,
                               const std::vector<WorkId> &after);
  moert::Result<WorkId> submitFill(uint64_t address, uint8_t value,
                                   size_t bytes,
                                   const std::vector<WorkId> &after);
  /// Adds a copy that takes effect at one moment, some time after all of
  /// `after`.
  moert::Result<WorkId> submitCopy(uint64_t to, uint64_t from, size_t bytes,
                                   const std::vector<WorkId> &after);
  /// Runs all submitted work. The first error ends the run and drops the rest.
  moert::Status run();

  /// Submits and runs one kernel.
  moert::Status launch(const LoadedModule &module, const std::string &kernel,
                       const moert::LaunchDims &dims,
                       const std::vector<uint8_t> &params);

  const Statistics &statistics() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

/// Packs the parameters of `kernel` from 64-bit slots, as moert::Device::launch
/// takes them, followed by its tensor maps.
moert::Result<std::vector<uint8_t>>
packParams(const KernelInfo &kernel, const std::vector<uint64_t> &slots,
           const std::vector<moert::TensorMap> &maps = {});

/// Encodes a tensor map in the simulator's format; the recipe's `data` is a
/// simulated address.
moert::Result<moert::TensorMap>
encodeTensorMap(const moert::TensorMapRecipe &recipe);

} // namespace moec::ptx

#endif // MOEC_PTXSIM_SIMULATOR_H
