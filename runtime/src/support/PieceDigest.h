//===- PieceDigest.h - digests of many gigabytes ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SHA-256 goes from one block to the next, so that one thread takes a second
// for two gigabytes. The digest here is that of the digests of pieces, which
// several threads find side by side.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_PIECEDIGEST_H
#define MOERT_SRC_SUPPORT_PIECEDIGEST_H

#include "Sha256.h"

#include <functional>
#include <vector>

namespace moert {

/// All pieces but the last have this size.
constexpr size_t kPieceBytes = size_t(4) << 20;

struct Bytes {
  const uint8_t *data = nullptr;
  size_t size = 0;
};

/// The digest of the digests of a tensor's pieces, in their order.
Sha256Digest digestPieces(const std::vector<Sha256Digest> &pieces);

/// That of each of the tensors. `step` is called in this thread, now and then,
/// with the bytes that are done.
std::vector<Sha256Digest>
digestInPieces(const std::vector<Bytes> &tensors,
               const std::function<void(uint64_t)> &step);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_PIECEDIGEST_H
