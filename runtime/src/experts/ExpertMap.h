//===- ExpertMap.h - checks of expert maps ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXPERTS_EXPERTMAP_H
#define MOERT_SRC_EXPERTS_EXPERTMAP_H

#include "moert/Status.h"

#include <cstdint>
#include <vector>

namespace moert {

/// Success for a map that has every expert of the layer and no others.
Status checkMap(const std::vector<int64_t> &logicalIds, int64_t numExperts);

} // namespace moert

#endif // MOERT_SRC_EXPERTS_EXPERTMAP_H
