//===- TensorPlace.h - what stands before a tensor's name -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CHECKPOINT_TENSORPLACE_H
#define MOEC_LIB_CHECKPOINT_TENSORPLACE_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace moec {

/// What stands before the name of a tensor in its block, taken apart:
/// `model.layers.3.mlp.` is in the layer `model.layers.3.`, number 3.
struct TensorPlace {
  explicit TensorPlace(llvm::StringRef prefix);

  std::string prefix;
  /// Up to and with the number; empty where there is none.
  std::string scope;
  std::optional<int64_t> layer;
  /// The modules up to and with the first one that no decoder is in
  /// ("model.visual."); empty for a place in a decoder.
  std::string otherPart;

  bool operator==(const TensorPlace &other) const {
    return prefix == other.prefix;
  }
};

/// Modules that begin two prefixes alike.
size_t countCommonModules(llvm::StringRef a, llvm::StringRef b);

} // namespace moec

#endif // MOEC_LIB_CHECKPOINT_TENSORPLACE_H
