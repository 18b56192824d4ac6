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
constexpr int64_t kMaxBracketNesting = 256;

/// Largest text of IR that is read. A layer has some ten kilobytes.
constexpr uint64_t kMaxIRBytes = uint64_t(64) << 20;

/// Fails if brackets of `text` nest deeper than kMaxBracketNesting, with a
/// message on `os` that has file, line and a caret. Knows MLIR's comments and
/// strings, and adds what an alias stands for to the depth of its use.
mlir::LogicalResult checkNesting(llvm::MemoryBufferRef text,
                                 llvm::raw_ostream &os);

/// Fails, with a message on `os`, on what MLIR's parser is not given: text that
/// nests too deep, and bytecode, whose reader trusts its input.
mlir::LogicalResult checkIRText(llvm::MemoryBufferRef text,
                                llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_COMPILER_SOURCEFILE_H
