//===- OpenDevice.cpp - opens the device of --device ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpenDevice.h"

#include "moec/PtxSim/SimDevice.h"
#include "moec/Support/Targets.h"
#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"

#include <climits>
#include <ctime>
#include <optional>

using Devices = std::vector<std::unique_ptr<moert::Device>>;

static moert::Result<std::unique_ptr<moert::Device>>
openSimulator(uint64_t seed, llvm::StringRef target) {
  moec::ptx::SimDeviceOptions options;
  options.simulator.seed = seed;
  const moec::TargetFacts *facts = moec::findTarget(target);
  if (facts && !facts->simulated.empty())
    options.architecture = facts->simulated.str();
  return moec::ptx::createSimDevice(options);
}

/// N of "`kind`:N", 0 of "`kind`"; no value for other names.
static std::optional<uint64_t> getNumber(llvm::StringRef name,
                                         llvm::StringRef kind) {
  uint64_t number = 0;
  if (name.consume_front(kind) &&
      (name.empty() ||
       (name.consume_front(":") && !name.getAsInteger(10, number))))
    return number;
  return std::nullopt;
}

static std::optional<int> getOrdinal(llvm::StringRef name) {
  std::optional<uint64_t> number = getNumber(name, "cuda");
  if (number && *number <= INT_MAX)
    return int(*number);
  return std::nullopt;
}

moert::Result<std::unique_ptr<moert::Device>>
moec::openDevice(llvm::StringRef name, int threads, llvm::StringRef target) {
  if (name == "host")
    return moert::createHostDevice(threads);
  if (std::optional<int> ordinal = getOrdinal(name))
    return moert::createCudaDevice(*ordinal);
  if (std::optional<uint64_t> seed = getNumber(name, "sim"))
    return openSimulator(*seed, target);
  return moert::invalidArgument(
      "--device: '" + name.str() +
      "' is none of 'host', 'cuda', 'cuda:N', 'sim' and 'sim:SEED'");
}

moert::Result<moec::RankDevices>
moec::openRankDevices(llvm::StringRef name, int threads, int64_t count,
                      bool reachesPeers, double limitSeconds) {
  RankDevices made;
  std::optional<uint64_t> seed = getNumber(name, "sim");
  if (reachesPeers && seed) {
    ptx::SimDeviceOptions options;
    options.simulator.seed = *seed;
    auto devices = ptx::createSimDevices(options, size_t(count), limitSeconds);
    if (!devices)
      return devices.status();
    made.devices = std::move(*devices);
    for (const std::unique_ptr<moert::Device> &device : made.devices)
      made.peers.push_back(ptx::createSimPeerDevice(*device));
    return made;
  }
  for (int64_t rank = 0; rank < (name == "host" ? 1 : count); ++rank) {
    std::string own = name.str();
    if (name == "cuda")
      own += ":" + std::to_string(rank);
    auto device = openDevice(own, threads);
    if (!device)
      return device.status();
    made.devices.push_back(std::move(*device));
    if (!reachesPeers)
      continue;
    std::optional<int> ordinal = getOrdinal(own);
    if (!ordinal)
      return moert::invalidArgument(
          "--exchange=peer: ranks on '" + name.str() +
          "' cannot write to each other's memory; give --device=cuda or sim");
    auto peer = moert::createCudaPeerDevice(*made.devices.back(), *ordinal);
    if (!peer)
      return peer.status();
    made.peers.push_back(std::move(*peer));
  }
  return made;
}

moert::Result<Devices> moec::openDevices(llvm::StringRef name, int threads,
                                         llvm::StringRef target) {
  constexpr uint64_t kMost = 10000;
  uint64_t first = 0, last = 0;
  auto [head, tail] = name.split('-');
  bool isRange = head.consume_front("sim:") && name.contains('-');
  if (isRange && (head.getAsInteger(10, first) || tail.getAsInteger(10, last) ||
                  last < first || last - first >= kMost))
    return moert::invalidArgument("--device: '" + name.str() +
                                  "' must be sim:FIRST-LAST, with at most " +
                                  std::to_string(kMost) + " seeds");
  Devices devices;
  for (uint64_t seed = first;; ++seed) {
    moert::Result<std::unique_ptr<moert::Device>> device =
        isRange ? openSimulator(seed, target)
                : openDevice(name, threads, target);
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
  // Example: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue
  // ..."
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
