//===- WriteFinding.h - files that reproduce a wrong row --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_VERIFY_WRITEFINDING_H
#define MOEC_LIB_TOOLS_VERIFY_WRITEFINDING_H

#include "SampledRun.h"

namespace moec {

/// Writes to a folder, which is made:
///
/// - `finding.json`: run, row, ids, weights, error, device, seed; and
///   `layer.json`, the spec of the layer;
/// - `row.safetensors`: what the call had for the row, and `expected` and
///   `found` as f32;
/// - `spec.json`, `inputs.safetensors` and `outputs.safetensors`: the row alone
///   as a layer of its own, of entry `ids` and with no other experts than the
///   row's, for moe-run and for the reference in Python.
moert::Status writeFinding(const std::string &folder, const LayerSpec &spec,
                           const SampledRun &run, const CheckedRow &checked,
                           const BoundWeights &weights,
                           const std::string &device, uint64_t seed);

} // namespace moec

#endif // MOEC_LIB_TOOLS_VERIFY_WRITEFINDING_H
