//===- TensorMapCache.cpp - encoded tensor maps -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorMapCache.h"
#include "../plan/TensorMaps.h"

namespace moert {

Result<TensorMap> TensorMapCache::encode(const LoadedLayer &layer,
                                         const TensorMapKey &key, void *data,
                                         int64_t rows,
                                         const std::vector<int64_t> &strides) {
  if (!data || rows == 0)
    return TensorMap();
  const TensorDecl &decl = layer.plan.tensors[key.tensor];
  TensorMapRecipe recipe =
      makeTensorMapRecipe(layer.plan.kernels[key.kernel].tensorMaps[key.map],
                          decl, data, rows, strides);
  Encoded &encoded = known[key];
  if (encoded.recipe == recipe)
    return encoded.map;
  Result<TensorMap> made = layer.device.encodeTensorMap(recipe);
  if (!made)
    return made.status().withContext(
        "kernels[" + std::to_string(key.kernel) + "].tensor_maps[" +
        std::to_string(key.map) + "] of '" + decl.name + "'");
  encoded = {std::move(recipe), *made};
  return encoded.map;
}

} // namespace moert
