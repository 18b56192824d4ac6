//===- BulkCopy.h - a copy by the copy engine -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_BULKCOPY_H
#define MOEC_VERIFY_PTXSIM_ENGINE_BULKCOPY_H

#include "Engine.h"

namespace moec::ptx {

/// A bulk copy between global and shared memory, in chunks that are read and
/// written in any order. Its reads and its writes complete separately.
class BulkCopy : public AsyncOperation {
public:
  struct Piece {
    /// Addresses before swizzling.
    uint64_t shared = 0, global = 0;
    uint32_t bytes = 0;
    /// The CTA that has the shared memory.
    Cta *owner = nullptr;
    /// The chunk's bytes that are within the tensor, at `global`. A load
    /// zero-fills the others; a store skips them.
    uint32_t begin = 0, end = 0;
    /// Bytes that a store has read and not yet written.
    std::vector<uint8_t> held;
  };

  BulkCopy(Warp &warp, const Instruction &instruction, unsigned lane);

  bool advance(Engine &engine) override;
  bool isDone() const override { return pieces.empty() && held.empty(); }
  bool usesShared(const Cta &owner) const override;
  bool hasReadAll() const { return pieces.empty(); }

  /// Whether the mbarrier in each of `owners`, to which the copy loads, is
  /// visible to the async proxy; false after an error.
  bool knowsMbarriers(const std::vector<Cta *> &owners);

  /// Chunks that have not started; for stores, chunks read and not written.
  std::vector<Piece> pieces, held;
  bool loads = false;
  /// Whether a thread has waited for the end of its reads.
  bool isReadAwaited = false;
  unsigned swizzleBytes = 0;
  uint64_t bytes = 0, mbarrier = 0;
  /// The thread's clocks when it issued the copy, see Warp::finished.
  ClockRef clock, finished;
  unsigned readUnit, writeUnit;
  uint32_t readTick, writeTick;

private:
  bool load(Piece &piece);
  bool read(Piece &piece);
  bool write(Piece &piece);
  /// Checks an access and reports errors.
  bool check(Region &region, uint64_t address, uint64_t size, bool isWrite);
  Region *findGlobal(uint64_t address, uint64_t size);
  Accessor accessor(bool isShared, bool isWrite) const;
  bool report(const std::string &text);
  uint8_t *chunk(const Piece &piece, uint32_t offset) {
    return piece.owner->shared.at(chunkAddress(piece, offset));
  }
  uint64_t chunkAddress(const Piece &piece, uint32_t offset) const;

  Warp &warp;
  const Instruction &source;
  const unsigned lane;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_BULKCOPY_H
