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

#include "llvm/ADT/ArrayRef.h"
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

/// Blocks whose codes are numbers of points of a grid.
llvm::ArrayRef<GgmlBlock> getGgmlGridBlocks();

/// Null for a type that ggml does not have.
const GgmlBlock *findGgmlBlock(llvm::StringRef name);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_GGMLBLOCKS_H
