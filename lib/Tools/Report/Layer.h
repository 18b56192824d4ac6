//===- Layer.h - a compiled layer for the report ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_LAYER_H
#define MOEC_LIB_TOOLS_REPORT_LAYER_H

#include "../ExpectedRun.h"
#include "Html.h"
#include "Measured.h"
#include "moec/Import/LayerSpec.h"
#include "moec/Target/NVPTX.h"
#include "moert/Plan.h"

namespace moec::report {

struct PhaseFigures {
  Work work;
  /// Empty if no rates of the target are known.
  std::optional<Prediction> prediction;
};

/// The launches that serve a range of token counts.
struct TokenRange {
  plan::VariantOp op;
  const moert::Variant *steps;
  llvm::SmallVector<LaunchedPhase> phases;
  /// The least token count, but not 0, and the most.
  llvm::SmallVector<int64_t> ends;
  /// Indexed by phase, then by `ends`.
  std::vector<llvm::SmallVector<PhaseFigures>> figures;
};

/// A compiled layer, at level tile.
struct Layer {
  mlir::ModuleOp module;
  const std::optional<LayerSpec> &spec;
  const moert::Plan &plan;
  const Target &target;
  /// Null if no rates of the target are known.
  const DeviceRates *device;
  int64_t topK;
  std::vector<TokenRange> ranges;
  /// By kernel; empty without an assembler.
  std::map<std::string, KernelReport> assembled;
  Measured measured;
  /// Layers with experts of the model; 0 if the source describes one layer.
  int64_t numLayers = 0;

  Layer(mlir::ModuleOp module, const std::optional<LayerSpec> &spec,
        const moert::Plan &plan, const Target &target);

  PhaseFigures getFigures(const LaunchedPhase &phase, int64_t tokens) const;
  ExpectedRun getTotal(const TokenRange &range, int64_t tokens) const;
  /// The range that contains a token count; null if there is none.
  const TokenRange *findRange(int64_t tokens) const;
};

/// The result of a phase, or else its name.
std::string getStage(const LaunchedPhase &phase);
Keys getKeys(const LaunchedPhase &phase);
/// The style of its colour: "product", "routing", "combine" or "rows".
llvm::StringRef getStyle(mlir::Operation *phase);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_LAYER_H
