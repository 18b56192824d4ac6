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

/// The names of all rewrites ("append-adapters" first), in the order in which
/// they run.
llvm::SmallVector<llvm::StringRef> getLaunchRewriteNames();

/// Facts of a compilation on which rewrites depend.
struct LaunchFacts {
  /// A launch may begin before the one ahead of it has ended.
  bool dependentLaunches = true;
  /// Each buffer keeps a workspace slot of its own, to be read after a run.
  bool keepsBuffers = false;
};

/// What a rewrite requires of a compilation.
enum class RewriteRequirement {
  Nothing,
  /// The rewritten launch begins early and waits for memory itself.
  DependentLaunches,
  /// Buffers come, go or live longer, so that slots are assigned anew.
  FreeSlots
};

/// Whether the rewrite with this name, a known one, states `requirement`.
bool hasRequirement(llvm::StringRef name, RewriteRequirement requirement);

/// Why the rewrite with this name, a known one, is off: `disabled` names it, or
/// a fact does not meet its requirement. Empty if it runs.
std::string whyOff(llvm::StringRef name, const LaunchFacts &facts,
                   llvm::ArrayRef<std::string> disabled);

/// Returns an error that lists all names if one of `names` is unknown.
llvm::Error checkLaunchRewrites(llvm::ArrayRef<std::string> names);

/// A parameter of a rewrite and its value.
struct RewriteParameter {
  std::string rewrite, name;
  int64_t value;

  /// Parses "REWRITE.NAME=VALUE", as in "split-sort.most=2048", or
  /// "REWRITE.NAME" for the value 1.
  static llvm::Expected<RewriteParameter> parse(llvm::StringRef text);
};

llvm::Expected<std::vector<RewriteParameter>>
parseRewriteParameters(llvm::ArrayRef<std::string> texts);

} // namespace moec

#endif // MOEC_TRANSFORMS_LAUNCHREWRITES_H
