//===- ReportLayer.h - a layer as a page ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_REPORTLAYER_H
#define MOEC_TOOLS_REPORTLAYER_H

#include "moec/Compiler/Compiler.h"

namespace moec {

/// Results of moe-bench that a page shows beside what is expected.
struct BenchResults {
  /// What messages call them, and the text: JSON as moe-bench --json writes it.
  /// No text stands for no results.
  std::string name, json;
  /// Which of their layers this one is; they may have one alone.
  std::optional<std::string> layer;
};

/// A page in HTML that needs nothing else: the layer drawn, its times and a
/// roofline, for each range of tokens the launches with streams and workspace,
/// the kernels and the configs that were not taken, and every level from the
/// spec to the code of the kernels. `os` gets what is wrong with the results;
/// what is wrong with the layer is told by diagnostics. The module is left at
/// level tile.
mlir::FailureOr<std::string> reportLayer(const Source &source,
                                         const CompileOptions &options,
                                         const BenchResults &results,
                                         llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_TOOLS_REPORTLAYER_H
