//===- GgmlBlocks.h - dequantizes blocks of ggml ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights that a layer stores in its dtype may be in blocks of any kind in a
// GGUF file, of another kind in each tensor. The loader dequantizes them.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_GGMLBLOCKS_H
#define MOEC_LIB_TOOLS_RUN_GGMLBLOCKS_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace moec {

/// A block type of ggml: its name, and elements and bytes of a block.
struct GgmlBlock {
  llvm::StringLiteral name;
  int64_t elements, bytes;
  /// Dequantizes one block.
  void (*decode)(const uint8_t *block, float *elements);
};

/// Null for types that are not dequantized.
const GgmlBlock *findGgmlBlock(llvm::StringRef name);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_GGMLBLOCKS_H
