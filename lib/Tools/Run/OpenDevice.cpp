//===- OpenDevice.cpp - the device that --device names ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpenDevice.h"

#include "moec/Ptx/Sim/SimDevice.h"
#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"

#include <ctime>

using Devices = std::vector<std::unique_ptr<moert::Device>>;

static moert::Result<std::unique_ptr<moert::Device>>
openSimulator(uint64_t seed) {
  moec::ptx::SimDeviceOptions options;
  options.simulator.seed = seed;
  return moec::ptx::createSimDevice(options);
}

moert::Result<std::unique_ptr<moert::Device>>
moec::openDevice(llvm::StringRef name, int threads) {
  if (name == "host")
    return moert::createHostDevice(threads);
  llvm::StringRef number = name;
  int ordinal = 0;
  if (number.consume_front("cuda") &&
      (number.empty() || (number.consume_front(":") &&
                          !number.getAsInteger(10, ordinal) && ordinal >= 0)))
    return moert::createCudaDevice(ordinal);
  uint64_t seed = 0;
  number = name;
  if (number.consume_front("sim") &&
      (number.empty() ||
       (number.consume_front(":") && !number.getAsInteger(10, seed))))
    return openSimulator(seed);
  return moert::invalidArgument(
      "--device: '" + name.str() +
      "' is none of 'host', 'cuda', 'cuda:N', 'sim' and 'sim:SEED'");
}

moert::Result<Devices> moec::openDevices(llvm::StringRef name, int threads) {
  constexpr uint64_t kMost = 10000;
  uint64_t first = 0, last = 0;
  auto [head, tail] = name.split('-');
  bool isRange = head.consume_front("sim:") && name.contains('-');
  if (isRange && (head.getAsInteger(10, first) || tail.getAsInteger(10, last) ||
                  last < first || last - first >= kMost))
    return moert::invalidArgument("--device: '" + name.str() +
                                  "' has to be sim:FIRST-LAST, at most " +
                                  std::to_string(kMost) + " seeds");
  Devices devices;
  for (uint64_t seed = first;; ++seed) {
    moert::Result<std::unique_ptr<moert::Device>> device =
        isRange ? openSimulator(seed) : openDevice(name, threads);
    if (!device)
      return device.status();
    devices.push_back(std::move(*device));
    if (seed == last)
      return devices;
  }
}

std::string moec::getDriverVersion() {
  auto file =
      llvm::MemoryBuffer::getFileAsStream("/proc/driver/nvidia/version");
  if (!file)
    return "";
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue ..."
  llvm::SmallVector<llvm::StringRef> words;
  (*file)->getBuffer().split('\n').first.split(words, ' ', -1, false);
  for (llvm::StringRef word : words)
    if (word.contains('.') &&
        word.find_first_not_of("0123456789.") == llvm::StringRef::npos)
      return word.str();
  return "";
}

std::string moec::getUtcTime() {
  std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}
