//===- WarpForms.h - instructions of a whole warp ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_WARPFORMS_H
#define MOEC_VERIFY_PTXSIM_FORMS_WARPFORMS_H

#include "../Machine/Machine.h"

namespace moec::ptx {

/// For a `.sync` instruction: checks that all lanes agree on the member mask,
/// and waits for the member lanes. Returns Next once they are here.
Step gatherMembers(Warp &warp, const Instruction &instruction, LaneMask mask,
                   Slot members);

/// For an `.aligned` instruction, which all lanes of the warp execute. Returns
/// Next once they are here.
Step gatherWarp(Warp &warp, const Instruction &instruction, LaneMask mask);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_WARPFORMS_H
