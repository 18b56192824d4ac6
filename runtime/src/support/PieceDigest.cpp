//===- PieceDigest.cpp - parallel digests of large data ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PieceDigest.h"
#include "Threads.h"

#include <algorithm>
#include <atomic>

namespace moert {

/// More threads do not read memory faster.
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
  pthread_t caller = pthread_self();
  auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      auto [tensor, piece] = pieces[i];
      const Bytes &bytes = tensors[tensor];
      size_t begin = piece * kPieceBytes;
      size_t size = std::min(kPieceBytes, bytes.size - begin);
      digests[tensor][piece] = sha256(bytes.data + begin, size);
      uint64_t now = done += size;
      if (step && pthread_equal(pthread_self(), caller))
        step(now);
    }
  };
  shareWork(std::min({kMostThreads, countProcessors(), pieces.size()}), work);
  std::vector<Sha256Digest> all;
  all.reserve(digests.size());
  for (const std::vector<Sha256Digest> &each : digests)
    all.push_back(digestPieces(each));
  return all;
}

} // namespace moert
