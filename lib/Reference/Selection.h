//===- Selection.h - which experts a token takes ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys are compared through integers that are ordered as they are. All orders
// are total: by key descending, then by lowest index. Keys that lie 1 to 4
// units in the last place apart may be seen in either order by who computes in
// f32.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_REFERENCE_SELECTION_H
#define MOEC_LIB_REFERENCE_SELECTION_H

#include "moec/Import/LayerSpec.h"

#include <vector>

namespace moec::reference {

/// Orders of keys count these parts of an f32 unit in the last place, for keys
/// may differ that f32 does not tell apart.
constexpr int64_t kPartsOfUlp = 256;

/// The order of a key, kPartsOfUlp apart per unit in the last place.
int64_t getKeyOrder(double key);

/// The orders of the groups' keys; empty where groups are not selected.
std::vector<int64_t> getGroupOrder(const LayerSpec &spec,
                                   const std::vector<double> &keys);

/// The ids, in their order.
std::vector<int64_t> choose(const LayerSpec &spec,
                            const std::vector<int64_t> &order,
                            const std::vector<int64_t> &groupOrder);

/// Whether near ties allow these ids, all in range.
bool isAcceptable(const LayerSpec &spec, const std::vector<int64_t> &order,
                  const std::vector<int64_t> &groupOrder,
                  llvm::ArrayRef<int64_t> ids);

} // namespace moec::reference

#endif // MOEC_LIB_REFERENCE_SELECTION_H
