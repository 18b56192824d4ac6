//===- Retained.h - what captured graphs own ------------------ -*- C++ -*-===//
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

/// The graph that `stream` is being captured into owns `owned`.
Status retainInGraph(const Driver &driver, CUstream stream,
                     std::shared_ptr<const void> owned);

/// Frees what graphs owned that are destroyed by now. The driver tells of their
/// end in a function that may not call it, so that others call this.
void freeReleased();

} // namespace moert::cuda

#endif // MOERT_SRC_CUDA_RETAINED_H
