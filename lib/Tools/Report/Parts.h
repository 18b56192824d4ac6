//===- Parts.h - the parts of a report's page -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_PARTS_H
#define MOEC_LIB_TOOLS_REPORT_PARTS_H

#include "Layer.h"

namespace moec::report {

/// Router, dispatch, experts, shared experts and combine, with shapes, types
/// and formats, drawn. Of a layer without a spec its tensors alone.
void drawLayer(const Layer &layer, llvm::raw_ostream &os);

/// Times of the whole layer by tokens, expected and measured.
void showTimes(const Layer &layer, llvm::raw_ostream &os);

/// What products do per second by what they do per byte, under the ceilings of
/// the device. Nothing where no rates of the target are known.
void drawRoofline(const Layer &layer, llvm::raw_ostream &os);

/// Launches of a range in their order on their streams, events, and what of
/// the workspace lives meanwhile, at the most tokens.
void drawTimeline(const Layer &layer, const TokenRange &range,
                  llvm::raw_ostream &os);

/// Each phase: its config, what it takes of a multiprocessor, its work and its
/// time.
void showKernels(const Layer &layer, const TokenRange &range,
                 llvm::raw_ostream &os);

/// Bytes and tensors of each slot.
void showWorkspace(const Layer &layer, llvm::raw_ostream &os);

/// "tokens * 8" as "T * 8", with the dtype: "[T * 8, 768] bf16".
std::string showType(const moert::TensorDecl &tensor);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_PARTS_H
