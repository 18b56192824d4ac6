//===- Parts.h - parts of the report's page ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_PARTS_H
#define MOEC_LIB_TOOLS_REPORT_PARTS_H

#include "Layer.h"

namespace moec::report {

/// Says what made the page, and when.
void showOrigin(llvm::StringRef command, llvm::raw_ostream &os);

/// Shows memory and expected times of the layer, and of all layers of the
/// model.
void showSummary(const Layer &layer, llvm::raw_ostream &os);

/// Draws router, dispatch, experts, shared experts and combine with shapes,
/// types and formats. For a layer without a spec draws only its tensors.
void drawLayer(const Layer &layer, llvm::raw_ostream &os);

/// Shows expected and measured times of the whole layer by token count.
void showTimes(const Layer &layer, llvm::raw_ostream &os);

/// Draws operations per second of gemms over operations per byte, under the
/// ceilings of the device. Draws nothing if no rates of the target are known.
void drawRoofline(const Layer &layer, llvm::raw_ostream &os);

/// Draws the launches of a range in order on their streams, events, and the
/// live buffers of the workspace, at the most tokens.
void drawTimeline(const Layer &layer, const TokenRange &range,
                  llvm::raw_ostream &os);

void showKernels(const Layer &layer, const TokenRange &range,
                 llvm::raw_ostream &os);

void showWorkspace(const Layer &layer, llvm::raw_ostream &os);

/// The shape with "T" for tokens, and the dtype: "[T * 8, 768] bf16".
std::string showType(const moert::TensorDecl &tensor);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_PARTS_H
