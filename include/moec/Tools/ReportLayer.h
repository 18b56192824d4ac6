//===- ReportLayer.h - a layer as an HTML page ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_REPORTLAYER_H
#define MOEC_TOOLS_REPORTLAYER_H

#include "moec/Compiler/Compiler.h"

namespace moec {

/// Results of moe-bench that a report shows beside expected times.
struct BenchResults {
  /// The name of the results in messages, and their text: JSON as moe-bench
  /// --json writes it. An empty `json` means no results.
  std::string name, json;
  /// The layer to take from the results; may be absent if they have only one.
  std::optional<std::string> layer;
};

/// Returns a self-contained HTML page: a drawing of the layer, its times and a
/// roofline; for each range of token counts the launches with streams and
/// workspace; the kernels, and the configs that were not taken; and every level
/// from the spec to the code of the kernels. Errors in the results are printed
/// to `os`, errors in the layer are emitted as diagnostics. The module is left
/// at level tile. `command` is what made the page, which says so with the
/// version and the time (SOURCE_DATE_EPOCH, if set); empty: only these.
mlir::FailureOr<std::string> reportLayer(const Source &source,
                                         const CompileOptions &options,
                                         const BenchResults &results,
                                         llvm::StringRef command,
                                         llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_TOOLS_REPORTLAYER_H
