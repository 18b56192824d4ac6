//===- MemoryForms.h - loads and stores -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_MEMORYFORMS_H
#define MOEC_VERIFY_PTXSIM_FORMS_MEMORYFORMS_H

#include "../Machine/Machine.h"
#include "Decoder.h"

namespace moec::ptx {

/// Memory semantics of an access, such as `.relaxed.gpu`.
struct Semantics {
  bool isStrong = false, acquires = false, releases = false;
  bool isCtaScope = false;

  uint32_t pack() const;
  static Semantics unpack(uint32_t flags);
  /// Whether strong accesses never race with this one. An access of scope cta
  /// may race with those of other CTAs.
  bool isStrongAt(bool isShared) const;
};

Semantics takeSemantics(Decoder &decoder);
Space takeSpace(Decoder &decoder);

uint64_t addressOf(const Warp &warp, const AddressOperand &operand,
                   unsigned lane);

/// A strong read: acquires what was published at `place`, now or at the next
/// fence. `isStale`: the read returns the value before the last write.
void learnFrom(Warp &warp, unsigned lane, const Warp::Place &place,
               const Semantics &semantics, bool isStale = false);
/// A strong write. A read-modify-write keeps what earlier writes published.
void publishTo(Warp &warp, unsigned lane, const Warp::Place &place,
               const Semantics &semantics, bool keepsEarlier);

/// Must precede a strong write's change of memory: threads that do not know of
/// the write may keep reading the old value.
void noteStrongWrite(Warp &warp, const Instruction &instruction, unsigned lane,
                     const Warp::Place &place, unsigned bytes);
/// The old value that a strong read returns this time; null for the latest.
const uint64_t *findStale(Warp &warp, unsigned lane, const Warp::Place &place,
                          unsigned bytes);
/// Whether the thread has already seen the last strong write.
bool hasSeenLast(Warp &warp, unsigned lane, const Warp::Place &place);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_MEMORYFORMS_H
