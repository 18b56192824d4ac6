//===- PieceDigest.cpp - digests of many gigabytes --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PieceDigest.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace moert {

/// More read memory no faster.
static constexpr size_t kMostThreads = 8;

Sha256Digest digestPieces(const std::vector<Sha256Digest> &pieces) {
  return sha256(pieces.data(), pieces.size() * sizeof(Sha256Digest));
}

std::vector<Sha256Digest>
digestInPieces(const std::vector<Bytes> &tensors,
               const std::function<void(uint64_t)> &step) {
  std::vector<std::vector<Sha256Digest>> digests;
  std::vector<std::pair<size_t, size_t>> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t count = (tensors[i].size + kPieceBytes - 1) / kPieceBytes;
    digests.emplace_back(count);
    for (size_t piece = 0; piece < count; ++piece)
      pieces.emplace_back(i, piece);
  }
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done{0};
  auto work = [&](bool tells) {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      auto [tensor, piece] = pieces[i];
      const Bytes &bytes = tensors[tensor];
      size_t begin = piece * kPieceBytes;
      size_t size = std::min(kPieceBytes, bytes.size - begin);
      digests[tensor][piece] = sha256(bytes.data + begin, size);
      uint64_t now = done += size;
      if (tells && step)
        step(now);
    }
  };
  size_t most = std::min<size_t>(
      kMostThreads, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(most, pieces.size()); ++i)
    threads.emplace_back(work, /*tells=*/false);
  work(/*tells=*/true);
  for (std::thread &thread : threads)
    thread.join();
  std::vector<Sha256Digest> all;
  all.reserve(digests.size());
  for (const std::vector<Sha256Digest> &each : digests)
    all.push_back(digestPieces(each));
  return all;
}

} // namespace moert
