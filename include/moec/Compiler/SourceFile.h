//===- SourceFile.h - reads the files that describe a layer -----*- C++ -*-===//
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

/// Deepest nesting of brackets that a text of IR may have. MLIR's parser
/// recurses for each level, so that deeper text could exhaust the stack.
constexpr int64_t maxBracketNesting = 256;

/// Fails, with a message on the error stream that has file, line and a caret,
/// if brackets of `text` nest deeper than maxBracketNesting. Knows MLIR's
/// comments and strings.
mlir::LogicalResult checkNesting(llvm::MemoryBufferRef text);

} // namespace moec

#endif // MOEC_COMPILER_SOURCEFILE_H
