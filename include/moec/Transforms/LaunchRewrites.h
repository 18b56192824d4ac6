//===- LaunchRewrites.h - rewrites of launches by name ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and parameters of the rewrites of tile-rewrite-launches, as options
// give them (docs/design/lowering-to-gpu.md).
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TRANSFORMS_LAUNCHREWRITES_H
#define MOEC_TRANSFORMS_LAUNCHREWRITES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace moec {

/// The names of all rewrites ("quantize-results" first), in the order in which
/// they run.
llvm::SmallVector<llvm::StringRef> getLaunchRewriteNames();

/// Returns an error that lists all names if one of `names` is unknown.
llvm::Error checkLaunchRewrites(llvm::ArrayRef<std::string> names);

/// A parameter of a rewrite and its value.
struct RewriteParameter {
  std::string rewrite, name;
  int64_t value;

  /// Parses "REWRITE.NAME=VALUE", as in "split-ranking.most=2048", or
  /// "REWRITE.NAME" for the value 1.
  static llvm::Expected<RewriteParameter> parse(llvm::StringRef text);
};

llvm::Expected<std::vector<RewriteParameter>>
parseRewriteParameters(llvm::ArrayRef<std::string> texts);

} // namespace moec

#endif // MOEC_TRANSFORMS_LAUNCHREWRITES_H
