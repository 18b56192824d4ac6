//===- Launches.cpp - recorded launches of a layer --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launches.h"

#include "moert/GpuTarget.h"
#include "moert/Safetensors.h"

#include <algorithm>
#include <cstring>

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using moert::Result;
using moert::Status;

namespace {

uint64_t addressOf(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

class RecordedBuffer : public moert::Buffer {
public:
  RecordedBuffer(uint64_t address, size_t bytes)
      : address(address), bytes(bytes) {}
  void *data() const override { return reinterpret_cast<void *>(address); }
  size_t size() const override { return bytes; }

private:
  const uint64_t address;
  const size_t bytes;
};

struct RecordedKernel : moert::Kernel {
  const std::string &name() const override { return module->kernels[0].name; }

  std::shared_ptr<const RawModule> module;
  LoadedModule *loaded = nullptr;
};

struct RecordedModule : moert::Module {
  Result<moert::Kernel *> kernel(const std::string &name) override {
    for (RecordedKernel &kernel : kernels)
      if (kernel.name() == name)
        return static_cast<moert::Kernel *>(&kernel);
    return moert::notFound("kernel '" + name + "' is not in the package");
  }

  std::vector<RecordedKernel> kernels;
};

struct RecordedStream : moert::Stream {};
struct RecordedEvent : moert::Event {};

/// A simulated device that executes calls at once, and records the memory
/// before each launch.
class RecordingDevice : public moert::DeviceWithoutGraphs {
public:
  RecordingDevice(Recording &recording, const Grids &grids)
      : recording(recording), grids(grids) {}

  const std::string &name() const override { return deviceName; }
  std::string architecture() const override { return "sm_90"; }
  bool takesMachineCode() const override { return false; }
  Status checkTarget(const std::string &target) const override {
    return moert::GpuTarget::parse(target)
               ? Status::ok()
               : moert::invalidArgument("target '" + target + "' is not a GPU");
  }

  Result<std::unique_ptr<moert::Buffer>> allocate(size_t bytes,
                                                  size_t alignment) override;
  Status copyIn(void *to, const void *from, size_t bytes) override {
    return simulator.write(addressOf(to), from, bytes);
  }
  Status copyOut(void *to, const void *from, size_t bytes) override {
    return simulator.read(to, addressOf(from), bytes);
  }
  Status fill(moert::Stream &, void *to, uint8_t value, size_t bytes) override {
    std::vector<uint8_t> values(bytes, value);
    return simulator.write(addressOf(to), values.data(), bytes);
  }

  Result<std::unique_ptr<moert::Module>>
  loadModule(const moert::ModuleImage &image) override;
  Result<std::unique_ptr<moert::Stream>> createStream() override {
    return std::unique_ptr<moert::Stream>(new RecordedStream());
  }
  Result<std::unique_ptr<moert::Event>> createEvent() override {
    return std::unique_ptr<moert::Event>(new RecordedEvent());
  }

  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims,
                const moert::LaunchArgs &args) override;
  Status record(moert::Stream &, moert::Event &) override {
    return Status::ok();
  }
  Status wait(moert::Stream &, moert::Event &) override { return Status::ok(); }
  Status synchronize(moert::Stream &) override { return Status::ok(); }
  Result<moert::TensorMap>
  encodeTensorMap(const moert::TensorMapRecipe &recipe) override {
    return moec::ptx::encodeTensorMap(recipe);
  }

private:
  Status addMemory(Launch &launch) const;

  const std::string deviceName = "recorder";
  Recording &recording;
  const Grids grids;
  Simulator simulator;
  std::vector<Allocation> allocations;
};

/// A module of the kernel alone, without source lines, which running does not
/// need.
std::shared_ptr<const RawModule> extract(const RawModule &module,
                                         const RawKernel &kernel) {
  auto alone = std::make_shared<RawModule>();
  alone->version = module.version;
  alone->target = module.target;
  alone->variables = module.variables;
  alone->kernels = {kernel};
  alone->lines = module.lines;
  return alone;
}

bool asksForGrid(const RawKernel &kernel) {
  return std::any_of(kernel.instructions.begin(), kernel.instructions.end(),
                     [](const RawInstruction &instruction) {
                       return instruction.operands.size() == 2 &&
                              instruction.operands[1].text == "%nctaid.x";
                     });
}

} // namespace

Result<std::unique_ptr<moert::Buffer>>
RecordingDevice::allocate(size_t bytes, size_t alignment) {
  Result<uint64_t> address = simulator.allocate(bytes, alignment, "memory");
  if (!address)
    return address.status();
  Allocation allocation;
  allocation.address = *address;
  allocation.bytes = bytes;
  allocation.alignment = alignment;
  allocations.push_back(allocation);
  return std::unique_ptr<moert::Buffer>(new RecordedBuffer(*address, bytes));
}

Result<std::unique_ptr<moert::Module>>
RecordingDevice::loadModule(const moert::ModuleImage &image) {
  auto made = std::make_unique<RecordedModule>();
  for (const std::vector<uint8_t> &bytes : image.modules) {
    std::string text(bytes.begin(), bytes.end());
    text.erase(text.find_last_not_of('\0') + 1);
    Result<RawModule> raw = parsePtx(text);
    if (!raw)
      return raw.status();
    for (const RawKernel &kernel : raw->kernels) {
      RecordedKernel recorded;
      recorded.module = extract(*raw, kernel);
      Result<LoadedModule *> loaded =
          simulator.load(*recorded.module, kernel.name);
      if (!loaded)
        return loaded.status();
      recorded.loaded = *loaded;
      recording.modules[kernel.name] = recorded.module;
      made->kernels.push_back(std::move(recorded));
    }
  }
  return std::unique_ptr<moert::Module>(std::move(made));
}

/// Records the memory that parameters point to; tensor maps hold addresses,
/// too.
Status RecordingDevice::addMemory(Launch &launch) const {
  launch.memory = allocations;
  for (size_t at = 0; at + sizeof(uint64_t) <= launch.params.size();
       at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, &launch.params[at], sizeof(word));
    for (Allocation &allocation : launch.memory)
      allocation.isUsed |= word - allocation.address < allocation.bytes;
  }
  for (Allocation &allocation : launch.memory) {
    if (!allocation.isUsed)
      continue;
    allocation.data.resize(allocation.bytes);
    allocation.initialized.resize(allocation.bytes);
    if (Status status = simulator.read(allocation.data.data(),
                                       allocation.address, allocation.bytes);
        !status)
      return status;
    if (Status status =
            simulator.readInitialized(allocation.initialized.data(),
                                      allocation.address, allocation.bytes);
        !status)
      return status;
  }
  return Status::ok();
}

Status RecordingDevice::launch(moert::Stream &, moert::Kernel &kernel,
                               const moert::LaunchDims &dims,
                               const moert::LaunchArgs &args) {
  const auto &recorded = static_cast<RecordedKernel &>(kernel);
  const KernelInfo &info = recorded.loaded->kernels()[0];
  Result<std::vector<uint8_t>> params =
      packParams(info, {args.slots, args.slots + args.numSlots},
                 {args.maps, args.maps + args.numMaps});
  if (!params)
    return params.status();
  Launch launch;
  launch.kernel = info.name;
  launch.dims = dims;
  if (asksForGrid(recorded.module->kernels[0]))
    launch.dims.grid = std::min(launch.dims.grid, grids.most);
  launch.moreCtas = grids.more;
  launch.params = *params;
  if (Status status = addMemory(launch); !status)
    return status;
  recording.launches.push_back(std::move(launch));
  return simulator.launch(*recorded.loaded, info.name,
                          recording.launches.back().dims, *params);
}

//===----------------------------------------------------------------------===//
// A run
//===----------------------------------------------------------------------===//

static Status bindTensors(moert::Executor &executor, moert::Device &device,
                          const moert::SafetensorsFile &file, int64_t tokens,
                          std::vector<std::unique_ptr<moert::Buffer>> &owned) {
  for (const moert::TensorDecl &decl : executor.plan().tensors) {
    if (decl.role == moert::TensorRole::Workspace ||
        decl.role == moert::TensorRole::Prepared)
      continue;
    moert::TensorView view;
    view.dtype = decl.dtype;
    size_t bytes = size_t(moert::dtypeBits(decl.dtype)) / 8;
    for (const moert::Expr &size : decl.shape) {
      Result<int64_t> value = size.evaluate(tokens);
      if (!value)
        return value.status();
      view.shape.push_back(*value);
      bytes *= size_t(*value);
    }
    Result<std::unique_ptr<moert::Buffer>> buffer =
        device.allocate(bytes, moert::kWorkspaceAlignment);
    if (!buffer)
      return buffer.status();
    view.data = (*buffer)->data();
    owned.push_back(std::move(*buffer));
    if (decl.role != moert::TensorRole::Output) {
      const moert::SafetensorsEntry *entry = file.find(decl.name);
      if (!entry || entry->bytes != bytes)
        return moert::invalidArgument(
            "tensor '" + decl.name + "': the file has " +
            (entry ? std::to_string(entry->bytes) : "no") +
            " bytes of it, the layer takes " + std::to_string(bytes));
      if (Status status = device.copyIn(view.data, entry->data, bytes); !status)
        return status;
    }
    if (Status status = executor.bind(decl.name, view); !status)
      return status;
  }
  return Status::ok();
}

Status mutate::record(const moert::Package &package, const std::string &inputs,
                      int64_t tokens, const Grids &grids,
                      Recording &recording) {
  Result<moert::SafetensorsFile> file = moert::SafetensorsFile::open(inputs);
  if (!file)
    return file.status();
  size_t first = recording.launches.size();
  RecordingDevice device(recording, grids);
  Result<std::unique_ptr<moert::Executor>> executor =
      moert::createExecutor(package, device);
  if (!executor)
    return executor.status();
  std::vector<std::unique_ptr<moert::Buffer>> buffers;
  if (Status status = bindTensors(**executor, device, *file, tokens, buffers);
      !status)
    return status;
  if (Result<moert::PrepareReport> report = (*executor)->prepareWeights();
      !report)
    return report.status();
  if (Status status = (*executor)->run(tokens); !status)
    return status.withContext(inputs);
  for (size_t i = first; i < recording.launches.size(); ++i)
    recording.launches[i].inputs = inputs.substr(inputs.find_last_of('/') + 1) +
                                   " (" + std::to_string(tokens) + " tokens)";
  return Status::ok();
}
