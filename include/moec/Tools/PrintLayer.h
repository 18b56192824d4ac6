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

enum class LayerForm {
  /// The spec as JSON, with every default resolved.
  Spec,
  /// IR of a level.
  Moe,
  Plan,
  Tile,
  /// Code of the kernels.
  LLVM,
  PTX,
  /// Text for a reader (moec/Tools/Explain.h).
  Explanation,
  FullExplanation
};

/// Whether the form can be printed even if the layer fits no device or a pass
/// cannot lower it.
bool isDescription(LayerForm form);

/// Returns the layer as text, compiled by `options` as far as the form needs.
/// Errors are emitted as diagnostics. The module is left at the level of the
/// form.
mlir::FailureOr<std::string> printLayer(const Source &source, LayerForm form,
                                        const CompileOptions &options);

} // namespace moec

#endif // MOEC_TOOLS_PRINTLAYER_H
