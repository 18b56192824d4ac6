//===- UnusedTensors.h - tensors of a block without a use -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rule for safetensors and GGUF alike: every tensor of the layer's block
// goes into the layer, or is named in an error. A tensor that is read past
// makes another layer than the file is of.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H
#define MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H

#include "TensorPlace.h"
#include "moec/Checkpoint/LocateLayer.h"
#include "llvm/ADT/StringSet.h"

namespace moec {

/// Names of a checkpoint in which the layer was found.
struct BlockNames {
  const moert::Checkpoint &checkpoint;
  const LayerRequest &request;
  /// Where the experts are; none where all names are canonical.
  const std::optional<TensorPlace> &block;
  /// Tensors that go into the layer.
  const llvm::StringSet<> &used;
};

/// Tensors that belong to the layer's block and are neither used nor in
/// `elsewhere`, in alphabetical order.
std::vector<std::string> findUnused(const BlockNames &names,
                                    const llvm::StringSet<> &elsewhere);

/// The field of the layer's description that would make it take a tensor that
/// is unused; empty where none would.
llvm::StringRef findFieldFor(const BlockNames &names, llvm::StringRef tensor);

} // namespace moec

#endif // MOEC_LIB_CHECKPOINT_UNUSEDTENSORS_H
