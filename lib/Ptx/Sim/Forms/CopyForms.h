//===- CopyForms.h - forms of cp.async --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_FORMS_COPYFORMS_H
#define MOEC_LIB_PTX_SIM_FORMS_COPYFORMS_H

#include "../Machine/Machine.h"
#include "Decoder.h"

namespace moec::ptx {

/// The copies that one instruction began, one per lane. Each belongs to nobody
/// while it is in flight, and to its thread once that has waited for it.
class LaneCopies : public AsyncOperation {
public:
  struct Copy {
    uint8_t *to = nullptr;
    const uint8_t *from = nullptr;
    uint32_t offset = 0;
    /// Which of its thread's groups it is in.
    uint32_t group = 0;
    uint8_t bytes = 0, zeros = 0;
  };

  bool advance(Engine &engine) override;
  bool isDone() const override { return pending == 0; }
  bool usesShared() const override { return unsettled != 0; }

  void arrive(unsigned lane);
  /// The thread has waited for its copy.
  void settle(Warp &warp, unsigned lane);

  Copy copies[kWarpLanes];
  /// Lanes whose bytes are under way; lanes whose thread has not waited.
  LaneMask pending = 0, unsettled = 0;
  Access inFlight;
};

/// What follows `cp.async.bulk`.
void decodeBulk(Decoder &decoder);
/// What changes no value, such as prefetches.
void decodeHint(Decoder &decoder);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_FORMS_COPYFORMS_H
