//===- SourceFile.h - checks of IR text -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_SOURCEFILE_H
#define MOEC_COMPILER_SOURCEFILE_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/MemoryBufferRef.h"

namespace moec {

/// Largest nesting of brackets in IR text. MLIR's parser recurses for each
/// level, so deeper text could exhaust the stack.
constexpr int64_t kMaxBracketNesting = 256;

/// Largest IR text. A layer has about ten kilobytes.
constexpr uint64_t kMaxIRBytes = uint64_t(64) << 20;

/// Fails if brackets of `text` nest deeper than kMaxBracketNesting, and prints
/// a message with file, line and caret on `os`. Handles MLIR's comments and
/// strings; a use of an alias counts with the depth of its definition.
mlir::LogicalResult checkNesting(llvm::MemoryBufferRef text,
                                 llvm::raw_ostream &os);

/// Fails, with a message on `os`, on text that MLIR's parser must not get: text
/// that nests too deep, arrays of `index`, and bytecode, whose reader trusts
/// its input.
mlir::LogicalResult checkIRText(llvm::MemoryBufferRef text,
                                llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_COMPILER_SOURCEFILE_H
