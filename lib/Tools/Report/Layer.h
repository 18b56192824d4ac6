//===- Layer.h - what the parts of a report are made of ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_LAYER_H
#define MOEC_LIB_TOOLS_REPORT_LAYER_H

#include "../PhaseTime.h"
#include "../PhaseWork.h"
#include "Html.h"
#include "Measured.h"
#include "moec/Import/LayerSpec.h"
#include "moec/Target/NVPTX.h"
#include "moert/Plan.h"

namespace moec::report {

/// A phase of a launch at one number of tokens.
struct PhaseFigures {
  Work work;
  /// Nothing where no rates of the target are known.
  std::optional<Prediction> prediction;
};

/// The launches that serve a range of tokens.
struct TokenRange {
  plan::VariantOp op;
  const moert::Variant *steps;
  llvm::SmallVector<LaunchedPhase> phases;
  /// The least (but 1) and the most tokens.
  llvm::SmallVector<int64_t> ends;
  /// By phases, then by ends.
  std::vector<llvm::SmallVector<PhaseFigures>> figures;
};

/// The time of all launches of a range, one after the other; nothing where no
/// rates are known.
struct Total {
  std::optional<double> us;
  double floorUs = 0;
  Work work;
};

/// A compiled layer, at level tile.
struct Layer {
  mlir::ModuleOp module;
  const std::optional<LayerSpec> &spec;
  const moert::Plan &plan;
  const Target &target;
  /// Null where no rates of the target are known.
  const DeviceRates *device;
  int64_t topK;
  std::vector<TokenRange> ranges;
  /// By kernels; empty where there is no assembler.
  std::map<std::string, KernelReport> assembled;
  Measured measured;

  Layer(mlir::ModuleOp module, const std::optional<LayerSpec> &spec,
        const moert::Plan &plan, const Target &target);

  PhaseFigures getFigures(const LaunchedPhase &phase, int64_t tokens) const;
  Total getTotal(const TokenRange &range, int64_t tokens) const;
  /// The one that serves so many tokens; null where none does.
  const TokenRange *findRange(int64_t tokens) const;
};

/// What a phase makes, or else its name.
std::string getStage(const LaunchedPhase &phase);
/// Its results and its kernel.
Keys getKeys(const LaunchedPhase &phase);
/// The class of its colour: "product", "routing", "combine" or "rows".
llvm::StringRef getStyle(mlir::Operation *phase);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_LAYER_H
