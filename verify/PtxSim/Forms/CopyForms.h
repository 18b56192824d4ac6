//===- CopyForms.h - forms of cp.async --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_COPYFORMS_H
#define MOEC_VERIFY_PTXSIM_FORMS_COPYFORMS_H

#include "../Machine/Machine.h"
#include "Decoder.h"

namespace moec::ptx {

/// The copies that one cp.async issued, one per lane. In flight, a copy's
/// accesses are of a unit of their own; after the thread's wait they count as
/// the thread's.
class LaneCopies : public AsyncOperation {
public:
  struct Copy {
    uint8_t *to = nullptr;
    const uint8_t *from = nullptr;
    uint32_t offset = 0;
    /// Index of the commit group of its thread.
    uint32_t group = 0;
    uint8_t bytes = 0, zeros = 0;
  };

  bool advance(Engine &engine) override;
  bool isDone() const override { return pending == 0; }
  bool usesShared(const Cta &owner) const override {
    return &owner == cta && (unsettled != 0);
  }

  void arrive(unsigned lane);
  /// Makes a lane's copy the thread's own access, after its wait.
  void settle(Warp &warp, unsigned lane);

  Copy copies[kWarpLanes];
  /// Lanes whose bytes are in flight; lanes whose thread has not waited.
  LaneMask pending = 0, unsettled = 0;
  Access inFlight;
};

/// Decodes the rest of `cp.async.bulk`.
void decodeBulk(Decoder &decoder);
/// Decodes instructions that change no value, such as prefetches.
void decodeHint(Decoder &decoder);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_COPYFORMS_H
