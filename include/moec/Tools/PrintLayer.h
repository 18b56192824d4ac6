//===- PrintLayer.h - a layer as text ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_PRINTLAYER_H
#define MOEC_TOOLS_PRINTLAYER_H

#include "moec/Compiler/Compiler.h"

namespace moec {

/// What of a layer is printed.
enum class LayerForm {
  /// The description in JSON, with every default resolved.
  Spec,
  /// IR of a level.
  Moe,
  Plan,
  Tile,
  /// Code of the kernels.
  LLVM,
  PTX,
  /// For people (moec/Tools/Explain.h).
  Explanation,
  FullExplanation
};

/// Whether what no device could hold or no pass lowers can be printed.
bool isDescription(LayerForm form);

/// The layer as text, compiled by `options` as far as the form asks for. What
/// is wrong is told by diagnostics. The module is left at the level of the
/// form.
mlir::FailureOr<std::string> printLayer(const Source &source, LayerForm form,
                                        const CompileOptions &options);

} // namespace moec

#endif // MOEC_TOOLS_PRINTLAYER_H
