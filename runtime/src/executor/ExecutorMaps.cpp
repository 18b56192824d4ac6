//===- ExecutorMaps.cpp - tensor maps of launches ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A map is encoded once its tensor's address is known: when a weight is bound,
// or when a run is resolved. Maps are cached, and encoded again only for
// another address or number of rows.
//
//===----------------------------------------------------------------------===//

#include "../plan/TensorMaps.h"
#include "../support/Check.h"
#include "moert/Executor.h"

namespace moert {

Result<TensorMap> Executor::encodeMap(int64_t kernel, size_t map,
                                      int64_t tensor, void *data, int64_t rows,
                                      const std::vector<int64_t> &strides) {
  // A tensor without rows needs no map.
  if (!data || rows == 0)
    return TensorMap();
  const TensorDecl &decl = thePlan->tensors[tensor];
  TensorMapRecipe recipe = makeTensorMapRecipe(
      thePlan->kernels[kernel].tensorMaps[map], decl, data, rows, strides);
  EncodedMap &known = encodedMaps[{kernel, map, tensor}];
  if (known.recipe == recipe)
    return known.map;
  Result<TensorMap> encoded = device.encodeTensorMap(recipe);
  if (!encoded)
    return encoded.status().withContext("kernels[" + std::to_string(kernel) +
                                        "].tensor_maps[" + std::to_string(map) +
                                        "] of '" + decl.name + "'");
  known = {std::move(recipe), *encoded};
  return known.map;
}

Status Executor::resolveMaps(const Step &step, int64_t tokens) {
  const KernelDecl &kernel = thePlan->kernels[step.kernel];
  for (size_t i = 0; i < kernel.tensorMaps.size(); ++i) {
    int64_t tensor = step.args[kernel.tensorMaps[i].argument].tensor;
    isEncoded[tensor] = true;
    const TensorDecl &decl = thePlan->tensors[tensor];
    Result<int64_t> rows = decl.shape[0].evaluate(tokens);
    if (!rows)
      return rows.status();
    Result<TensorMap> map = encodeMap(
        step.kernel, i, tensor, addresses[tensor], *rows,
        decl.strided ? bindings[tensor].strides : tensorStrides(decl));
    if (!map)
      return map.status();
    resolvedMaps.push_back(*map);
  }
  return Status::ok();
}

Status Executor::encodeWeightMaps(int64_t tensor, const Binding &binding) {
  auto encode = [&](const std::vector<Step> &steps) -> Status {
    for (const Step &step : steps) {
      if (step.kind != Step::Kind::Launch)
        continue;
      const KernelDecl &kernel = thePlan->kernels[step.kernel];
      for (size_t i = 0; i < kernel.tensorMaps.size(); ++i)
        if (step.args[kernel.tensorMaps[i].argument].tensor == tensor)
          MOERT_CHECK(encodeMap(step.kernel, i, tensor, binding.data,
                                binding.shape[0], binding.strides)
                          .status());
    }
    return Status::ok();
  };
  MOERT_CHECK(encode(thePlan->prepare));
  for (const Variant &variant : thePlan->variants)
    MOERT_CHECK(encode(variant.steps));
  return Status::ok();
}

} // namespace moert
