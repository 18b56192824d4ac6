//===- PeerHeap.h - memory that the ranks of an axis share ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What PeerCommunicator and the kernels of tile.exchange agree on. Each rank of
// an axis has a heap on its device, which all others map: words of 64 bits,
// then two places for what comes from other ranks, which exchanges take in
// turns, then results, which other ranks copy to where they are read. All of
// these bytes are initialized: what no rank has pushed is read, too.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PEERHEAP_H
#define MOERT_PEERHEAP_H

#include <cstdint>

namespace moert {

struct PeerHeap {
  static constexpr int64_t kMaxRanks = 16;
  /// CTAs of one exchange, each of which has flags of its own.
  static constexpr int64_t kMaxCtas = 64;
  /// What parts begin at multiples of; a multiple of the largest piece.
  static constexpr int64_t kAlignment = 16;

  // Bytes from the heap's beginning to words that the owner sets before the
  // first exchange: its place on the axis; how long a kernel waits, in ns;
  // bytes of one of the two places.
  static constexpr int64_t kIndex = 0;
  static constexpr int64_t kLimit = 8;
  static constexpr int64_t kPlaceBytes = 16;
  /// Not 0: exchanges give up at once. 1 and the place on the axis of the rank
  /// that is to blame; its owner writes it, or a kernel of any rank that has
  /// failed.
  static constexpr int64_t kAbort = 64;
  /// Why a kernel of the owner's gave up, the first that did: a Reason above
  /// kReasonShift bits of the place on the axis of the rank that is to blame.
  static constexpr int64_t kFailure = 128;
  static constexpr int64_t kReasonShift = 32;
  /// The address at which that kernel would have written its first result.
  static constexpr int64_t kAddress = 136;
  /// Per CTA: exchanges that it has done. All are equal between launches.
  static constexpr int64_t kEpochs = 256;
  /// Per sending rank, per CTA: the rounds of its newest exchange that it has
  /// sent, and above kRoundBits bits the exchanges before.
  static constexpr int64_t kFlags = kEpochs + 8 * kMaxCtas;
  static constexpr int64_t kPlaces = kFlags + 8 * kMaxCtas * kMaxRanks;
  static_assert(kPlaces % 256 == 0);

  enum Reason : int64_t {
    None = 0,
    /// The rank did not come within the limit.
    TimedOut = 1,
    /// A rank gave up.
    Aborted = 2,
  };

  /// What an exchange is told in place of its rows: these, below kRowBits bits
  /// with one for each of the first kMaxCopied pairs of a gather, set where the
  /// kernel does not move it, since it has been copied.
  static constexpr int64_t kRowBits = 32;
  static constexpr int64_t kMaxCopied = 31;

  /// Rounds of one exchange are fewer than 2 to the power of this.
  static constexpr int64_t kRoundBits = 24;

  /// Bytes that a part takes in a place, where each rank sends `bytes`.
  static constexpr int64_t partBytes(int64_t ranks, int64_t bytes) {
    return ranks * ((bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
};

} // namespace moert

#endif // MOERT_PEERHEAP_H
