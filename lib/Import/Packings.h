//===- Packings.h - checkpoint layouts of quantized matrices ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a checkpoint a quantized matrix is a module with several tensors:
// elements, scales, zero points. Names and element orders are one table with a
// row per packing.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_PACKINGS_H
#define MOEC_LIB_IMPORT_PACKINGS_H

#include "moec/Import/TensorSignature.h"

#include "llvm/ADT/SmallVector.h"

namespace moec {

/// A tensor of the layer that belongs to a quantized matrix.
enum class Projection {
  Weight,
  Scale,
  ZeroPoint,
  Minimum,
  GlobalScale,
  InputScale
};

/// The projection of an expert tensor by its suffix, which is removed from
/// `name`.
Projection takePlane(llvm::StringRef &name);

/// The name of a tensor from that of a module or parameter and a suffix. `{p}`
/// in the suffix is the last component, which moves there: "experts.w" and
/// "._{p}_scale" give "experts._w_scale".
std::string joinName(llvm::StringRef name, llvm::StringRef suffix);

/// The quantized matrices of E experts, E x rows x K, that the layer stores in
/// its dtype. `module` is their name.
std::shared_ptr<const StoredMatrix>
makeStoredMatrix(const QuantizationSpec &quantization, llvm::StringRef module,
                 std::vector<int64_t> shape);
/// Likewise of experts that are all in one parameter of each kind, one for each
/// naming of `getParameterTensors`.
std::vector<std::shared_ptr<const StoredMatrix>>
makeStoredParameters(const QuantizationSpec &quantization, llvm::StringRef name,
                     const std::vector<int64_t> &shape);

/// The tensors of a module that give one projection of its matrix; the
/// projection's own tensor is first. `name` is the suffix of the module's name;
/// the caller sets the rows. Empty if the packing does not have the projection.
llvm::SmallVector<CheckpointPart, 4>
getModuleTensors(const QuantizationSpec &quantization, Projection projection);

/// Tensors beside parameters of all experts, whose names have no module:
/// `gate_up_proj_scale` beside `gate_up_proj`. One list for each naming that a
/// tool uses.
llvm::SmallVector<llvm::SmallVector<CheckpointPart, 4>, 4>
getParameterTensors(const QuantizationSpec &quantization,
                    Projection projection);
/// The names' suffixes alone.
llvm::SmallVector<std::string, 4>
getFusedSuffixes(const QuantizationSpec &quantization, Projection projection);

} // namespace moec

#endif // MOEC_LIB_IMPORT_PACKINGS_H
