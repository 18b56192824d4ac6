//===- Simulator.h - runs PTX without a GPU ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A functional simulator for the PTX that the compiler emits: every thread of
// every CTA, with races, fences and barriers checked.
// docs/design/ptx-simulator.md says what is modelled.

#ifndef MOEC_PTX_SIM_SIMULATOR_H
#define MOEC_PTX_SIM_SIMULATOR_H

#include "moert/Device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moec::ptx {

/// The limits of what is simulated: those of a part of sm_90a of which nothing
/// else is known (moec/Support/Parts.h, which needs LLVM; a test holds the two
/// together).
struct SimulatedLimits {
  static constexpr int64_t kMultiprocessors = 132;
  static constexpr int64_t kSharedBytesPerCta = 227 * 1024;
  static constexpr int64_t kRegistersPerMultiprocessor = 64 * 1024;
  static constexpr int64_t kRegistersPerThread = 255;
};

struct SimulatorOptions {
  /// Drives all that hardware leaves open: the order of warps, CTAs and
  /// kernels, when asynchronous work is done, which lane is elected, spurious
  /// failures of waits. Correct kernels give the same bits for every seed.
  uint64_t seed = 0;
  /// Accesses that nothing orders, and proxy fences.
  bool checkRaces = true;
  /// Reads of shared and global memory that nobody wrote.
  bool checkInitialized = true;
  /// CTAs of all kernels that are resident at once, so that one that waits for
  /// a CTA that has yet to begin does not go on.
  unsigned residentCtas = 4;
  /// The most that a kernel may have whose CTAs wait for each other
  /// (`dims.resident`); all of those become resident.
  unsigned maxResidentCtas = SimulatedLimits::kMultiprocessors;
  /// Instructions of warps, in all runs together, after which a run is given
  /// up.
  uint64_t maxWarpInstructions = UINT64_MAX;
};

struct KernelInfo {
  std::string name;
  /// Size and offset of each parameter in the buffer that launch() takes.
  struct Param {
    size_t offset = 0, size = 0;
  };
  std::vector<Param> params;
  size_t paramBytes = 0;
  /// What `.reqntid` says; 0 if the kernel does not say.
  unsigned requiredThreads = 0;
  size_t staticShared = 0;
  size_t numInstructions = 0;
};

/// What a kernel does, whatever the schedule, and has no need to do twice.
struct Work {
  /// Asynchronous copies between global and shared memory: those of each thread
  /// (cp.async, of no bytes as well), and each one in bulk. Bytes: those that
  /// are read, and of boxes of tensors those outside of it, too.
  uint64_t copies = 0, copiedBytes = 0;
  /// Multiplications of mma and wgmma.
  uint64_t products = 0;

  bool operator==(const Work &other) const {
    return copies == other.copies && copiedBytes == other.copiedBytes &&
           products == other.products;
  }
};

/// What all launches so far took.
struct Statistics {
  uint64_t launches = 0, ctas = 0;
  Work work;
  /// Instructions times the threads that ran them; polls that failed are not
  /// counted.
  uint64_t threadInstructions = 0;
  uint64_t warpInstructions = 0;
  /// The host's time in run().
  double seconds = 0;
};

struct RawModule;

/// Kernels that were loaded; the simulator owns them.
class LoadedModule {
public:
  virtual ~LoadedModule();
  virtual const std::vector<KernelInfo> &kernels() const = 0;
  /// Null if there is none of that name.
  const KernelInfo *find(const std::string &name) const;
};

/// Work that was submitted.
using WorkId = uint64_t;

/// Memory, modules and work of one simulated GPU. Not safe from several
/// threads at once.
class Simulator {
public:
  explicit Simulator(SimulatorOptions options = {});
  ~Simulator();

  /// Kernels of PTX text; `fileName` is for messages. An instruction that is
  /// not known is an error that names its line.
  moert::Result<LoadedModule *> load(const std::string &text,
                                     const std::string &fileName);
  /// The same of text that was parsed.
  moert::Result<LoadedModule *> load(const RawModule &module,
                                     const std::string &fileName);

  /// The address of new memory, all uninitialized. `name` is for messages.
  moert::Result<uint64_t> allocate(size_t bytes, size_t alignment,
                                   const std::string &name);
  moert::Status release(uint64_t address);
  /// What the host does at once. Work must not be pending.
  moert::Status write(uint64_t address, const void *data, size_t bytes);
  moert::Status read(void *data, uint64_t address, size_t bytes) const;
  /// A flag per byte, which says whether somebody has written it.
  moert::Status readInitialized(uint8_t *flags, uint64_t address,
                                size_t bytes) const;
  /// Whether the bytes lie in one allocation.
  moert::Status checkRange(uint64_t address, size_t bytes) const;

  /// Success where all CTAs of such a launch can be resident at once.
  moert::Status checkResident(const std::string &kernel,
                              const moert::LaunchDims &dims) const;

  /// Adds a kernel that may run when all of `after` are done, and in any order
  /// with the rest. `params` are laid out as KernelInfo says. A dependent one
  /// (`dims.dependent`) whose `after` is one kernel may begin when all CTAs of
  /// that have executed griddepcontrol.launch_dependents, or ended.
  moert::Result<WorkId> submit(const LoadedModule &module,
                               const std::string &kernel,
                               const moert::LaunchDims &dims,
                               const std::vector<uint8_t> &params,
                               const std::vector<WorkId> &after);
  moert::Result<WorkId> submitFill(uint64_t address, uint8_t value,
                                   size_t bytes,
                                   const std::vector<WorkId> &after);
  /// What it brings is there at some time after all of `after`, at once.
  moert::Result<WorkId> submitCopy(uint64_t to, uint64_t from, size_t bytes,
                                   const std::vector<WorkId> &after);
  /// Does all that was submitted. The first error ends it, and drops the rest.
  moert::Status run();

  /// submit() and run() of one kernel.
  moert::Status launch(const LoadedModule &module, const std::string &kernel,
                       const moert::LaunchDims &dims,
                       const std::vector<uint8_t> &params);

  const Statistics &statistics() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

/// The parameters of `kernel` from 64-bit slots as moert::Device::launch takes
/// them, followed by its tensor maps.
moert::Result<std::vector<uint8_t>>
packParams(const KernelInfo &kernel, const std::vector<uint64_t> &slots,
           const std::vector<moert::TensorMap> &maps = {});

/// A tensor map that the simulator understands; `data` of the recipe is an
/// address of the simulator.
moert::Result<moert::TensorMap>
encodeTensorMap(const moert::TensorMapRecipe &recipe);

} // namespace moec::ptx

#endif // MOEC_PTX_SIM_SIMULATOR_H
