//===- CheckpointNames.h - names in Hugging Face checkpoints ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_CHECKPOINTNAMES_H
#define MOEC_LIB_IMPORT_CHECKPOINTNAMES_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// The checkpoint layouts of a weight in the layer's family. A layer without a
/// family accepts the layouts of families that store experts separately.
std::vector<CheckpointForm> getCheckpointForms(const LayerSpec &spec,
                                               const TensorInfo &tensor);

/// A name of the family's table with the numbers of the layer and of its bank
/// in place of `{l}` and `{b}`.
std::string numberName(llvm::StringRef name, const LayerSpec &spec);

/// Alternatives with an expert's id behind the projection, as ModelOpt writes a
/// parameter of all experts that it made a list of modules:
/// "experts.{e}.up_proj" becomes "experts.up_proj.{e}".
std::string putExpertLast(llvm::StringRef alternatives);

/// Modules of all experts in MLX's models: gate, up, down.
inline constexpr llvm::StringLiteral kTogether[] = {
    "switch_mlp.gate_proj|experts.gate_proj",
    "switch_mlp.up_proj|experts.up_proj|switch_mlp.fc1",
    "switch_mlp.down_proj|experts.down_proj|switch_mlp.fc2"};

/// A part for the router's weight of 2 R rows becomes two of R rows each: the
/// rounded values and what the rounding loses.
CheckpointForm splitGate(CheckpointPart part);

} // namespace moec

#endif // MOEC_LIB_IMPORT_CHECKPOINTNAMES_H
