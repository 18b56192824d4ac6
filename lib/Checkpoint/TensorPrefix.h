//===- TensorPrefix.h - the prefix of a tensor's name -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CHECKPOINT_TENSORPREFIX_H
#define MOEC_LIB_CHECKPOINT_TENSORPREFIX_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace moec {

/// The prefix of a tensor's name before its block, parsed:
/// `model.layers.3.mlp.` is in the layer `model.layers.3.`, index 3.
struct TensorPrefix {
  explicit TensorPrefix(llvm::StringRef prefix);

  std::string prefix;
  /// The prefix including the index; empty if there is none.
  std::string scope;
  std::optional<int64_t> layer;
  /// The modules up to the first one that is not part of a decoder
  /// ("model.visual."), inclusive; empty inside a decoder.
  std::string otherPart;

  bool operator==(const TensorPrefix &other) const {
    return prefix == other.prefix;
  }
};

/// Number of leading modules that two prefixes share.
size_t countCommonModules(llvm::StringRef a, llvm::StringRef b);

} // namespace moec

#endif // MOEC_LIB_CHECKPOINT_TENSORPREFIX_H
