//===- Emit.h - the schedules of GPUs ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Entry points of schedules, each of which emits the body of a kernel with one
// phase. A folder of lib/Schedules defines each.

#ifndef MOEC_LIB_SCHEDULES_INTERFACE_EMIT_H
#define MOEC_LIB_SCHEDULES_INTERFACE_EMIT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

struct Target;

/// Target of emission: the new function, which has the arguments of `kernel`
/// and an empty block, and the threads of a CTA.
struct KernelBody {
  mlir::func::FuncOp func;
  tile::KernelOp kernel;
  int64_t threads;
  const Target &target;
};

/// Attribute of a barrier between two phases of a kernel, after which threads
/// read global memory that others of their CTA have written.
inline constexpr llvm::StringLiteral kBetweenPhasesAttr = "moec.between_phases";

/// Attribute of a kernel: its `#tile.kernel_form`, if it has one.
inline constexpr llvm::StringLiteral kFormAttr = "moec.form";

/// Attribute of the barrier that ends the independent part of a kernel whose
/// form is `ahead`: accesses before it touch no memory of launches that may
/// still run.
inline constexpr llvm::StringLiteral kEndsAheadAttr = "moec.ends_ahead";
/// On a barrier behind which a kernel may read what launches have written that
/// come before the launch before it, as that launch has signalled their end.
inline constexpr llvm::StringLiteral kEndsAwaitAttr = "moec.ends_await";

// The code of each schedule. It fails with a diagnostic on what it cannot emit.
#define MOEC_GPU_SCHEDULE(NAME, TARGETS)                                       \
  mlir::LogicalResult emit##NAME(mlir::Operation *phase, KernelBody body);
#include "moec/Schedules/Schedules.def"

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_INTERFACE_EMIT_H
