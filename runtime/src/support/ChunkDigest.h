//===- ChunkDigest.h - parallel digests of large data -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SHA-256 is sequential: one thread takes a second for two gigabytes. The
// digest here is the digest of the digests of chunks, which several threads
// compute.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_CHUNKDIGEST_H
#define MOERT_SRC_SUPPORT_CHUNKDIGEST_H

#include "Sha256.h"

#include <functional>
#include <vector>

namespace moert {

/// Size of all chunks except the last.
constexpr size_t kDigestChunkBytes = size_t(4) << 20;

struct Bytes {
  const uint8_t *data = nullptr;
  size_t size = 0;
};

/// The digest of the digests of a tensor's chunks, in order.
Sha256Digest digestChunks(const std::vector<Sha256Digest> &chunks);

/// The digest of each tensor. `step` is called in this thread now and then with
/// the number of bytes done.
std::vector<Sha256Digest>
digestInChunks(const std::vector<Bytes> &tensors,
               const std::function<void(uint64_t)> &step);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_CHUNKDIGEST_H
