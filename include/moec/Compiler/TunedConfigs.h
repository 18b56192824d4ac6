//===- TunedConfigs.h - reads files of tuned configs ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_TUNEDCONFIGS_H
#define MOEC_COMPILER_TUNEDCONFIGS_H

#include "moec/Support/Diagnostics.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace moec {

/// Reads a file of configs for `target`, in the form of
/// `CompileOptions::configs`:
///
///   {"target": "sm_80",
///    "configs": [{"kernel": "router_logits", "tokens": [1, 64],
///                 "config": "gpu.gemv block_m=8 threads=128"}]}
///
/// A config without `tokens` applies to all token counts. Prints errors on
/// `os`.
llvm::FailureOr<std::vector<std::string>>
readTunedConfigs(llvm::StringRef path, llvm::StringRef target,
                 llvm::raw_ostream &os);
/// Reads configs from the text of such a file.
llvm::FailureOr<std::vector<std::string>>
readTunedConfigs(const SourceText &text, llvm::StringRef target,
                 llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_COMPILER_TUNEDCONFIGS_H
