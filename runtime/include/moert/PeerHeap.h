//===- PeerHeap.h - memory that the ranks of an axis share ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layout of the heaps that PeerCommunicator and the kernels of tile.exchange
// share. Each rank of an axis has a heap on its device, which all others map:
// 64-bit words, then two receive buffers, which exchanges alternate between,
// then results, which other ranks write to directly. All of these bytes are
// initialized, since bytes that no rank has written are read too.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PEERHEAP_H
#define MOERT_PEERHEAP_H

#include <cstdint>

namespace moert {

struct PeerHeap {
  static constexpr int64_t kMaxRanks = 16;
  /// CTAs of one exchange, each with its own flags.
  static constexpr int64_t kMaxCtas = 64;
  /// Alignment of parts in bytes; a multiple of the largest access.
  static constexpr int64_t kAlignment = 16;

  // Byte offsets of words that the heap's rank sets before the first exchange:
  // its index on the axis; the time that a kernel waits, in ns; bytes of one of
  // the two receive buffers.
  static constexpr int64_t kIndex = 0;
  static constexpr int64_t kLimit = 8;
  static constexpr int64_t kBufferBytes = 16;
  /// If not 0, exchanges give up at once. The value is 1 + the axis index of
  /// the rank to blame; written by the heap's rank, or by a failed kernel of
  /// any rank.
  static constexpr int64_t kAbort = 64;
  /// The failure of the first kernel of the heap's rank that gave up: a Reason,
  /// above kReasonShift bits for the axis index of the rank to blame.
  static constexpr int64_t kFailure = 128;
  static constexpr int64_t kReasonShift = 32;
  /// The address to which that kernel would have written its first result.
  static constexpr int64_t kAddress = 136;
  /// Per CTA: the number of completed exchanges. All are equal between
  /// launches.
  static constexpr int64_t kEpochs = 256;
  /// Per sending rank, per CTA: the number of rounds sent in its newest
  /// exchange, and above kRoundBits bits the number of earlier exchanges.
  static constexpr int64_t kFlags = kEpochs + 8 * kMaxCtas;
  static constexpr int64_t kBuffers = kFlags + 8 * kMaxCtas * kMaxRanks;
  static_assert(kBuffers % 256 == 0);

  enum Reason : int64_t {
    None = 0,
    /// The rank did not arrive within the limit.
    TimedOut = 1,
    /// A rank gave up.
    Aborted = 2,
  };

  /// Encodes the row argument of an exchange: the rows, below kRowBits bits
  /// with one flag for each of the first kMaxCopied pairs of a gather, set if
  /// copy engines move the pair instead of the kernel.
  static constexpr int64_t kRowBits = 32;
  static constexpr int64_t kMaxCopied = 31;

  /// An exchange has fewer than 2^kRoundBits rounds.
  static constexpr int64_t kRoundBits = 24;

  /// Bytes of a part in a receive buffer if each rank sends `bytes`.
  static constexpr int64_t partBytes(int64_t ranks, int64_t bytes) {
    return ranks * ((bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
};

} // namespace moert

#endif // MOERT_PEERHEAP_H
