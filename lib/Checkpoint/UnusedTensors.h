//===- UnusedTensors.h - unused tensors of a block --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For safetensors and GGUF alike: every tensor of the layer's block is used by
// the layer, or named in an error. Ignoring a tensor would compute a layer
// other than the file's.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H
#define MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H

#include "TensorPrefix.h"
#include "moec/Checkpoint/LocateLayer.h"
#include "llvm/ADT/StringSet.h"

namespace moec {

/// The names of a checkpoint in which the layer was found.
struct BlockNames {
  const moert::Checkpoint &checkpoint;
  const LayerRequest &request;
  /// Location of the experts; none if all names are canonical.
  const std::optional<TensorPrefix> &block;
  /// Tensors used by the layer.
  const llvm::StringSet<> &used;
};

/// Tensors of the layer's block that are neither used nor in `elsewhere`, in
/// alphabetical order.
std::vector<std::string> findUnused(const BlockNames &names,
                                    const llvm::StringSet<> &elsewhere);

/// The field of the layer's description that would make it use an unused
/// tensor; empty if there is none.
llvm::StringRef findFieldFor(const BlockNames &names, llvm::StringRef tensor);

} // namespace moec

#endif // MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H
