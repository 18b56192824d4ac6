//===- MemoryForms.h - what accesses to memory share ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_FORMS_MEMORYFORMS_H
#define MOEC_LIB_PTX_SIM_FORMS_MEMORYFORMS_H

#include "../Machine/Machine.h"
#include "Decoder.h"

namespace moec::ptx {

/// `.relaxed.gpu` and so on.
struct Semantics {
  bool isStrong = false, acquires = false, releases = false;
  bool isCtaScope = false;

  uint32_t pack() const;
  static Semantics unpack(uint32_t flags);
  /// Whether it never races with other strong accesses. One of scope cta may,
  /// with those of other CTAs.
  bool isStrongAt(bool isShared) const;
};

Semantics takeSemantics(Decoder &decoder);
Space takeSpace(Decoder &decoder);

uint64_t addressOf(const Warp &warp, const AddressOperand &operand,
                   unsigned lane);

/// A strong read: what was published at `place` is learned, now or at the next
/// fence.
/// `isStale`: it reads what the last write has replaced.
void learnFrom(Warp &warp, unsigned lane, const Warp::Place &place,
               const Semantics &semantics, bool isStale = false);
/// A strong write. One that reads, too, keeps what earlier ones published.
void publishTo(Warp &warp, unsigned lane, const Warp::Place &place,
               const Semantics &semantics, bool keepsEarlier);

/// To be called before a strong write changes memory: others that do not know
/// of it may go on reading what was there.
void noteStrongWrite(Warp &warp, const Instruction &instruction, unsigned lane,
                     const Warp::Place &place, unsigned bytes);
/// The old value that a strong read gets this time; null for the latest.
const uint64_t *findStale(Warp &warp, unsigned lane, const Warp::Place &place,
                          unsigned bytes);
/// Whether the thread has seen the last strong write there already.
bool hasSeenLast(Warp &warp, unsigned lane, const Warp::Place &place);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_FORMS_MEMORYFORMS_H
