//===- ExplainSummary.h - summary of a layer's choices ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINSUMMARY_H
#define MOEC_LIB_TOOLS_EXPLAINSUMMARY_H

#include "PhaseTime.h"
#include "moert/Plan.h"

namespace moec {

/// Prints at most `maxLines` lines of 140 columns about a program: its token
/// ranges with their launches, and expected times if rates of the target are
/// known; the traffic between ranks with the most tokens; and the configs of
/// its gemms. `data` is the program.
void explainSummary(plan::ProgramOp program, const moert::Plan &data,
                    int64_t topK, const Target &target, size_t maxLines,
                    llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINSUMMARY_H
