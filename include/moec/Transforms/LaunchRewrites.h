//===- LaunchRewrites.h - rewrites of launches by name ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What options say of the rewrites that tile-rewrite-launches runs
// (docs/launch-rewrites.md).
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

/// "quantize-results" and all others, in the order in which they run.
llvm::SmallVector<llvm::StringRef> getLaunchRewriteNames();

/// An error that lists all names if one of these is none of them.
llvm::Error checkLaunchRewrites(llvm::ArrayRef<std::string> names);

/// A parameter of a rewrite with its value.
struct RewriteParameter {
  std::string rewrite, name;
  int64_t value;

  /// From "REWRITE.NAME=VALUE", or "REWRITE.NAME" for 1, as in
  /// "split-ranking.most=2048".
  static llvm::Expected<RewriteParameter> parse(llvm::StringRef text);
};

llvm::Expected<std::vector<RewriteParameter>>
parseRewriteParameters(llvm::ArrayRef<std::string> texts);

} // namespace moec

#endif // MOEC_TRANSFORMS_LAUNCHREWRITES_H
