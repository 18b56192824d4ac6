//===- Random.h - random bytes of the system --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_RANDOM_H
#define MOERT_SRC_SUPPORT_RANDOM_H

#include "moert/Status.h"

#include <cstddef>

namespace moert {

/// Fills `bytes` with cryptographically random bytes.
Status drawRandom(void *bytes, size_t size);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_RANDOM_H
