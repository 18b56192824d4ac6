//===- Retained.h - objects that captured graphs own ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CUDA_RETAINED_H
#define MOERT_SRC_CUDA_RETAINED_H

#include "Driver.h"

#include <memory>

namespace moert::cuda {

/// Gives ownership of `owned` to the graph that `stream` is being captured
/// into.
Status retainInGraph(const Driver &driver, CUstream stream,
                     std::shared_ptr<const void> owned);

/// Frees objects of destroyed graphs. The driver reports a graph's end in a
/// callback that must not call the driver, so freeing is deferred to this
/// function.
void freeReleased();

} // namespace moert::cuda

#endif // MOERT_SRC_CUDA_RETAINED_H
