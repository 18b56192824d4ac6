//===- PooledContext.h - an MLIR context with a TaskPool --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_POOLEDCONTEXT_H
#define MOEC_SUPPORT_POOLEDCONTEXT_H

#include "mlir/IR/MLIRContext.h"
#include "moec/Support/TaskPool.h"

namespace moec {

namespace detail {
/// Base class, so that the pool outlives the context.
struct PoolOwner {
  TaskPool pool;
};
} // namespace detail

/// An MLIR context whose passes run on the threads of a TaskPool.
class PooledContext : detail::PoolOwner, public mlir::MLIRContext {
public:
  /// `threads` as in TaskPool's constructor.
  explicit PooledContext(const mlir::DialectRegistry &registry,
                         unsigned threads = 0)
      : PoolOwner{TaskPool(threads)},
        MLIRContext(registry, Threading::DISABLED) {
    if (threads != 1)
      setThreadPool(pool);
  }
};

} // namespace moec

#endif // MOEC_SUPPORT_POOLEDCONTEXT_H
