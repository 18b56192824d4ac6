//===- Expect.h - expected times of a layer as data -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_EXPECT_H
#define MOEC_TOOLS_EXPECT_H

#include "moec/Compiler/Compiler.h"

namespace moec {

/// The token counts of an expectation if none are asked for, as far as the
/// layer takes them.
llvm::ArrayRef<int64_t> getUsualTokenCounts();

/// Compiles a layer to level tile and returns a JSON object, whose fields are
/// those of docs/design/cost-model.md: the GPU, bytes of weights, and for each
/// of `tokens` the expected time with its bound, the floor, least bytes and
/// operations, the workspace, and the same of each step. `tokens` counts those
/// of all ranks along dp; empty: the usual counts. Errors are emitted as
/// diagnostics.
mlir::FailureOr<std::string> expectLayer(const Source &source,
                                         const CompileOptions &options,
                                         llvm::ArrayRef<int64_t> tokens);

} // namespace moec

#endif // MOEC_TOOLS_EXPECT_H
