//===- Selection.h - selection of a token's experts -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Selects experts by keys, compared as integers of equal order. All orders are
// total: by key descending, then by lowest index. Computations in f32 may see
// near ties, keys 1 to 4 ulp apart, in either order.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_REFERENCE_SELECTION_H
#define MOEC_VERIFY_REFERENCE_SELECTION_H

#include "moec/Import/LayerSpec.h"

#include <vector>

namespace moec::reference {

/// Orders of keys count in 1 / kPartsOfUlp of an f32 ulp, since keys may differ
/// by less than f32 resolves.
constexpr int64_t kPartsOfUlp = 256;

/// The order of a key; keys one ulp apart differ by kPartsOfUlp.
int64_t getKeyOrder(double key);

/// The orders of the groups' keys; empty if groups are not selected.
std::vector<int64_t> getGroupOrder(const LayerSpec &spec,
                                   const std::vector<double> &keys);

/// The selected ids, in order.
std::vector<int64_t> choose(const LayerSpec &spec,
                            const std::vector<int64_t> &order,
                            const std::vector<int64_t> &groupOrder);

/// Whether near ties allow these ids, all in range.
bool isAcceptable(const LayerSpec &spec, const std::vector<int64_t> &order,
                  const std::vector<int64_t> &groupOrder,
                  llvm::ArrayRef<int64_t> ids);

} // namespace moec::reference

#endif // MOEC_VERIFY_REFERENCE_SELECTION_H
