//===- Passes.h - passes inside one level -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TRANSFORMS_PASSES_H
#define MOEC_TRANSFORMS_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/Pass.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// Kernels of a program at most, unless an option says otherwise.
inline constexpr int64_t kMaxKernels = 24;
/// Above so many slots tile-split-ranking lets a launch of its own count them,
/// unless an option says otherwise.
inline constexpr int64_t kSplitRankingSlots = 16384;
/// The same of slots that the launch which routes their tokens can count.
inline constexpr int64_t kSplitRoutedSlots = 2048;
/// Up to so many slots are ranked by the CTA that routes their tokens, unless
/// an option of tile-fuse-routing says otherwise.
inline constexpr int64_t kFusedRankingSlots = 256;

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

#endif // MOEC_TRANSFORMS_PASSES_H
