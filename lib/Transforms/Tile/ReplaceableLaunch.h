//===- ReplaceableLaunch.h - launches for a collective ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_REPLACEABLELAUNCH_H
#define MOEC_LIB_TRANSFORMS_TILE_REPLACEABLELAUNCH_H

#include "moec/Dialect/Plan/Plan.h"

namespace moec {

/// The launch that makes buffer `input` of a collective, if the collective's
/// kernel may do that instead: the launch precedes it on its stream, with no
/// launch in between, only the collective reads its results, and its inputs
/// stay unchanged until then. Null for none.
plan::LaunchOp findReplaceable(plan::CollectiveOp collective,
                               mlir::Value input);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_REPLACEABLELAUNCH_H
