//===- SimRanks.cpp - ranks that are threads --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimRanks.h"

#include "moec/PtxSim/SimDevice.h"

#include <algorithm>
#include <thread>

using namespace moec;

bool exchanges::areRight(int64_t ranks, uint64_t seed, double limitSeconds,
                         const std::function<bool(SimRank)> &body) {
  ptx::SimDeviceOptions options;
  options.simulator.seed = seed;
  options.simulator.maxWarpInstructions = 20000000;
  auto devices = *ptx::createSimDevices(options, size_t(ranks), limitSeconds);
  auto group = *moert::LocalGroup::create({ranks, 1}, limitSeconds);
  std::vector<char> right(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < ranks; ++index)
    threads.emplace_back([&, index] {
      right[size_t(index)] =
          char(body({index, *devices[size_t(index)], *group}));
    });
  for (std::thread &thread : threads)
    thread.join();
  return std::all_of(right.begin(), right.end(),
                     [](char isRight) { return isRight != 0; });
}

moert::Result<std::unique_ptr<moert::PeerCommunicator>>
exchanges::connect(const SimRank &rank, std::shared_ptr<moert::PeerDevice> peer,
                   moert::PeerOptions options) {
  auto base = rank.group.join(rank.index, rank.device);
  if (!base)
    return base.status();
  options.base = std::move(*base);
  // Owned by the test.
  options.device =
      std::shared_ptr<moert::Device>(std::shared_ptr<void>(), &rank.device);
  options.peer = std::move(peer);
  return moert::createPeerCommunicator(options);
}

moert::ModuleImage exchanges::makeImage(const std::vector<std::string> &texts) {
  moert::ModuleImage image;
  image.kind = moert::ModuleImage::Kind::Ptx;
  for (const std::string &text : texts)
    image.modules.emplace_back(text.begin(), text.end());
  return image;
}
