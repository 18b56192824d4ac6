//===- ChunkDigest.cpp - parallel digests of large data ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChunkDigest.h"
#include "Threads.h"

#include <algorithm>
#include <atomic>

namespace moert {

/// More threads do not read memory faster.
static constexpr size_t kMostThreads = 8;

Sha256Digest digestChunks(const std::vector<Sha256Digest> &chunks) {
  return sha256(chunks.data(), chunks.size() * sizeof(Sha256Digest));
}

std::vector<Sha256Digest>
digestInChunks(const std::vector<Bytes> &tensors,
               const std::function<void(uint64_t)> &step) {
  std::vector<std::vector<Sha256Digest>> digests;
  std::vector<std::pair<size_t, size_t>> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t count =
        (tensors[i].size + kDigestChunkBytes - 1) / kDigestChunkBytes;
    digests.emplace_back(count);
    for (size_t chunk = 0; chunk < count; ++chunk)
      chunks.emplace_back(i, chunk);
  }
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done{0};
  pthread_t caller = pthread_self();
  auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      auto [tensor, chunk] = chunks[i];
      const Bytes &bytes = tensors[tensor];
      size_t begin = chunk * kDigestChunkBytes;
      size_t size = std::min(kDigestChunkBytes, bytes.size - begin);
      digests[tensor][chunk] = sha256(bytes.data + begin, size);
      uint64_t now = done += size;
      if (step && pthread_equal(pthread_self(), caller))
        step(now);
    }
  };
  shareWork(std::min({kMostThreads, countProcessors(), chunks.size()}), work);
  std::vector<Sha256Digest> all;
  all.reserve(digests.size());
  for (const std::vector<Sha256Digest> &each : digests)
    all.push_back(digestChunks(each));
  return all;
}

} // namespace moert
