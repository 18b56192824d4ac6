//===- Simulator.cpp - the interface of the library -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/Simulator.h"

#include "Engine/Engine.h"
#include "Forms/Decoder.h"

#include <algorithm>
#include <cstring>

using namespace moec::ptx;
using moert::Result;
using moert::Status;

LoadedModule::~LoadedModule() = default;

const KernelInfo *LoadedModule::find(const std::string &name) const {
  for (const KernelInfo &kernel : kernels())
    if (kernel.name == name)
      return &kernel;
  return nullptr;
}

namespace {

class Module : public LoadedModule {
public:
  explicit Module(const Program &program) : program(program) {
    for (const std::unique_ptr<Kernel> &kernel : program.kernels) {
      KernelInfo info;
      info.name = kernel->name;
      for (const Param &param : kernel->params)
        info.params.push_back({param.offset, param.size});
      info.paramBytes = kernel->paramBytes;
      info.requiredThreads = kernel->requiredThreads;
      info.staticShared = kernel->staticShared;
      info.numInstructions = kernel->code.size();
      infos.push_back(std::move(info));
    }
  }
  const std::vector<KernelInfo> &kernels() const override { return infos; }

  const Program &program;

private:
  std::vector<KernelInfo> infos;
};

} // namespace

class Simulator::Impl {
public:
  explicit Impl(const SimulatorOptions &options) : engine(options) {}

  Result<size_t> findAll(const std::vector<WorkId> &after,
                         std::vector<size_t> &indices) const;
  WorkId add(std::unique_ptr<Launch> launch);
  /// Adds the launch after earlier work.
  Result<WorkId> addBehind(const std::vector<WorkId> &after,
                           std::unique_ptr<Launch> launch);

  Engine engine;
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<std::unique_ptr<Launch>> batch;
  /// Id of the first launch of the batch.
  WorkId firstId = 1;
};

Simulator::Simulator(SimulatorOptions options)
    : impl(std::make_unique<Impl>(options)) {}

Simulator::~Simulator() = default;

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

Result<LoadedModule *> Simulator::load(const std::string &text,
                                       const std::string &fileName) {
  Result<RawModule> raw = parsePtx(text);
  if (!raw)
    return raw.status().withContext(fileName);
  return load(*raw, fileName);
}

Result<LoadedModule *> Simulator::load(const RawModule &raw,
                                       const std::string &fileName) {
  auto program = std::make_unique<Program>();
  program->fileName = fileName;
  SymbolTable symbols;
  for (const RawVariable &variable : raw.variables) {
    if (variable.space != "global" && variable.space != "const")
      continue;
    Result<uint64_t> address =
        allocate(variable.size, variable.alignment, variable.name);
    if (!address)
      return address.status();
    std::vector<uint8_t> bytes = variable.bytes;
    bytes.resize(variable.size);
    if (Status status = write(*address, bytes.data(), bytes.size()); !status)
      return status;
    symbols[variable.name] = *address;
  }
  if (Status status = decodeProgram(raw, symbols, *program); !status)
    return status.withContext(fileName);
  for (const std::unique_ptr<Kernel> &kernel : program->kernels) {
    kernel->firstId = impl->engine.nextInstructionId;
    for (Instruction &instruction : kernel->code)
      instruction.id = impl->engine.nextInstructionId++;
  }
  impl->modules.push_back(std::make_unique<Module>(*program));
  impl->engine.programs.push_back(std::move(program));
  return static_cast<LoadedModule *>(impl->modules.back().get());
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<uint64_t> Simulator::allocate(size_t bytes, size_t alignment,
                                     const std::string &name) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    return moert::invalidArgument("allocate: alignment " +
                                  std::to_string(alignment) +
                                  " is not a power of two");
  Region *region = impl->engine.memory.allocate(name, bytes, alignment);
  if (!region)
    return moert::resourceExhausted(
        "allocate: " + std::to_string(bytes) +
        " bytes are not available; use fewer tokens or experts");
  return region->address;
}

Status Simulator::release(uint64_t address) {
  if (impl->engine.memory.release(address))
    return Status::ok();
  return moert::invalidArgument("release: no memory is allocated there");
}

Status Simulator::checkRange(uint64_t address, size_t bytes) const {
  Region *region = impl->engine.memory.find(address);
  if (region && (region->contains(address, bytes) ||
                 (bytes == 0 && address == region->address)))
    return Status::ok();
  return moert::invalidArgument("the address is not in simulated memory, or "
                                "the bytes exceed the allocation");
}

Status Simulator::write(uint64_t address, const void *data, size_t bytes) {
  if (bytes == 0)
    return Status::ok();
  if (Status status = checkRange(address, bytes); !status)
    return status.withContext("write");
  Region *region = impl->engine.memory.find(address);
  std::memcpy(region->at(address), data, bytes);
  region->markInitialized(address, bytes);
  region->shadow.clear(address - region->address, bytes);
  return Status::ok();
}

Status Simulator::read(void *data, uint64_t address, size_t bytes) const {
  if (bytes == 0)
    return Status::ok();
  if (Status status = checkRange(address, bytes); !status)
    return status.withContext("read");
  std::memcpy(data, impl->engine.memory.find(address)->at(address), bytes);
  return Status::ok();
}

Status Simulator::readInitialized(uint8_t *flags, uint64_t address,
                                  size_t bytes) const {
  if (bytes == 0)
    return Status::ok();
  if (Status status = checkRange(address, bytes); !status)
    return status.withContext("readInitialized");
  Region *region = impl->engine.memory.find(address);
  region->copyInitialized(flags, address, bytes);
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

/// Work that has completed needs no index.
Result<size_t> Simulator::Impl::findAll(const std::vector<WorkId> &after,
                                        std::vector<size_t> &indices) const {
  for (WorkId id : after) {
    if (id >= firstId + batch.size())
      return moert::invalidArgument("submit: work " + std::to_string(id) +
                                    " was never submitted");
    if (id >= firstId)
      indices.push_back(size_t(id - firstId));
  }
  return indices.size();
}

WorkId Simulator::Impl::add(std::unique_ptr<Launch> launch) {
  launch->id = batch.size();
  batch.push_back(std::move(launch));
  return firstId + batch.size() - 1;
}

static Status checkDims(const Kernel &kernel, const moert::LaunchDims &dims) {
  constexpr int64_t kMaxThreads = 1024, kMaxCtas = INT32_MAX;
  constexpr int64_t maxShared = SimulatedLimits::kSharedBytesPerCta;
  std::string where = "launch of '" + kernel.name + "': ";
  if (dims.grid < 1 || dims.grid > kMaxCtas)
    return moert::invalidArgument(where + "a grid of " +
                                  std::to_string(dims.grid) +
                                  " CTAs; 1 to 2^31 - 1 are accepted");
  if (dims.grid % kernel.clusterCtas)
    return moert::invalidArgument(
        where + "a grid of " + std::to_string(dims.grid) +
        " CTAs; a multiple of the " + std::to_string(kernel.clusterCtas) +
        " CTAs of a cluster is accepted");
  if (dims.block < 1 || dims.block > kMaxThreads)
    return moert::invalidArgument(where + std::to_string(dims.block) +
                                  " threads; 1 to 1024 are accepted");
  if ((kernel.requiredThreads && dims.block != kernel.requiredThreads) ||
      (kernel.maxThreads && dims.block > kernel.maxThreads))
    return moert::invalidArgument(
        where + std::to_string(dims.block) +
        " threads; the kernel was "
        "compiled for " +
        std::to_string(kernel.requiredThreads + kernel.maxThreads));
  if (dims.shared < 0 || dims.shared + int64_t(kernel.staticShared) > maxShared)
    return moert::invalidArgument(where + std::to_string(dims.shared) +
                                  " bytes of shared memory; a CTA has " +
                                  std::to_string(maxShared / 1024) + " KiB");
  return Status::ok();
}

Status Simulator::checkResident(const std::string &kernel,
                                const moert::LaunchDims &dims) const {
  unsigned most = impl->engine.options.maxResidentCtas;
  if (!dims.resident || dims.grid <= most)
    return Status::ok();
  return moert::invalidArgument(
      "kernel '" + kernel + "' needs " + std::to_string(dims.grid) +
      " CTAs at once, but the simulated GPU runs at most " +
      std::to_string(most) +
      "; compile the layer by moe-compile with "
      "--disable=join-products,quantize-inputs");
}

Result<WorkId> Simulator::submit(const LoadedModule &module,
                                 const std::string &kernelName,
                                 const moert::LaunchDims &dims,
                                 const std::vector<uint8_t> &params,
                                 const std::vector<WorkId> &after) {
  const Program &program = static_cast<const Module &>(module).program;
  auto found = program.kernelByName.find(kernelName);
  if (found == program.kernelByName.end())
    return moert::notFound("kernel '" + kernelName + "' is not in " +
                           program.fileName);
  const Kernel &kernel = *found->second;
  if (Status status = checkDims(kernel, dims); !status)
    return status;
  if (Status status = checkResident(kernel.name, dims); !status)
    return status;
  if (params.size() != kernel.paramBytes)
    return moert::invalidArgument("launch of '" + kernel.name +
                                  "': " + std::to_string(params.size()) +
                                  " bytes of parameters; the kernel takes " +
                                  std::to_string(kernel.paramBytes));
  auto launch = std::make_unique<Launch>();
  launch->program = &program;
  launch->kernel = &kernel;
  launch->gridCtas = uint32_t(dims.grid);
  launch->clusterCtas = kernel.clusterCtas;
  launch->isResident = dims.resident;
  launch->threads = uint32_t(dims.block);
  launch->sharedBytes = uint64_t(dims.shared);
  launch->params = params;
  if (Result<size_t> count = impl->findAll(after, launch->after); !count)
    return count.status();
  launch->isDependent = dims.dependent && after.size() == 1 &&
                        launch->after.size() == 1 &&
                        impl->batch[launch->after.front()]->kernel;
  return impl->add(std::move(launch));
}

Result<WorkId> Simulator::Impl::addBehind(const std::vector<WorkId> &after,
                                          std::unique_ptr<Launch> launch) {
  if (Result<size_t> count = findAll(after, launch->after); !count)
    return count.status();
  return add(std::move(launch));
}

Result<WorkId> Simulator::submitFill(uint64_t address, uint8_t value,
                                     size_t bytes,
                                     const std::vector<WorkId> &after) {
  if (Status status = checkRange(address, bytes); !status)
    return status.withContext("fill");
  auto launch = std::make_unique<Launch>();
  launch->fillAddress = address;
  launch->fillBytes = bytes;
  launch->fillValue = value;
  return impl->addBehind(after, std::move(launch));
}

Result<WorkId> Simulator::submitCopy(uint64_t to, uint64_t from, size_t bytes,
                                     const std::vector<WorkId> &after) {
  for (uint64_t address : {to, from})
    if (Status status = checkRange(address, bytes); !status)
      return status.withContext("copy");
  auto launch = std::make_unique<Launch>();
  launch->fillAddress = to;
  launch->copiedAddress = from;
  launch->fillBytes = bytes;
  return impl->addBehind(after, std::move(launch));
}

Status Simulator::run() {
  bool isFine = impl->engine.run(impl->batch);
  impl->firstId += impl->batch.size();
  impl->batch.clear();
  return isFine
             ? Status::ok()
             : moert::internalError("simulated GPU: " + impl->engine.failure);
}

Status Simulator::launch(const LoadedModule &module, const std::string &kernel,
                         const moert::LaunchDims &dims,
                         const std::vector<uint8_t> &params) {
  Result<WorkId> work = submit(module, kernel, dims, params, {});
  if (!work)
    return work.status();
  return run();
}

const Statistics &Simulator::statistics() const {
  return impl->engine.statistics;
}

Result<std::vector<uint8_t>>
moec::ptx::packParams(const KernelInfo &kernel,
                      const std::vector<uint64_t> &slots,
                      const std::vector<moert::TensorMap> &maps) {
  if (slots.size() + maps.size() != kernel.params.size())
    return moert::invalidArgument("kernel '" + kernel.name + "' takes " +
                                  std::to_string(kernel.params.size()) +
                                  " parameters, given are " +
                                  std::to_string(slots.size()) + " slots and " +
                                  std::to_string(maps.size()) + " tensor maps");
  std::vector<uint8_t> bytes(kernel.paramBytes);
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const KernelInfo::Param &param = kernel.params[i];
    bool isMap = i >= slots.size();
    if (isMap ? param.size != sizeof(moert::TensorMap)
              : param.size > sizeof(uint64_t))
      return moert::invalidArgument("parameter " + std::to_string(i) +
                                    " of kernel '" + kernel.name + "' has " +
                                    std::to_string(param.size) + " bytes");
    const void *from =
        isMap ? static_cast<const void *>(&maps[i - slots.size()]) : &slots[i];
    std::memcpy(&bytes[param.offset], from, param.size);
  }
  return bytes;
}
