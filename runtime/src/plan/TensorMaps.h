//===- TensorMaps.h - tensor maps of a plan ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_TENSORMAPS_H
#define MOERT_SRC_PLAN_TENSORMAPS_H

#include "moert/Device.h"
#include "moert/Plan.h"

namespace moert {

/// Checks the parts of a map that do not depend on the tensor; `where` names
/// the map.
Status verifyTensorMap(const TensorMapDecl &map, const std::string &where);

/// Checks a verified map over a verified tensor.
Status verifyTensorMapOf(const TensorMapDecl &map, const TensorDecl &tensor,
                         const std::string &where);

/// The recipe of a verified map over a tensor at `data` with `rows` rows and
/// `strides` in elements.
TensorMapRecipe makeTensorMapRecipe(const TensorMapDecl &map,
                                    const TensorDecl &tensor, void *data,
                                    int64_t rows,
                                    const std::vector<int64_t> &strides);

/// Strides of a contiguous tensor, in elements.
std::vector<int64_t> contiguousStrides(const std::vector<int64_t> &shape);
std::vector<int64_t> tensorStrides(const TensorDecl &tensor);

} // namespace moert

#endif // MOERT_SRC_PLAN_TENSORMAPS_H
