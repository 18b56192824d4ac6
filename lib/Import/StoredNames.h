//===- StoredNames.h - what a checkpoint has of a layer ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A configuration may not say what is quantized: tools skip what they cannot
// quantize, as experts that are parameters and no modules, or experts without
// tokens in calibration. The names of a checkpoint's tensors tell.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_STOREDNAMES_H
#define MOEC_LIB_IMPORT_STOREDNAMES_H

#include "ModuleRules.h"
#include "moec/Import/Import.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

namespace moec {

class StoredNames {
public:
  /// `stored` is null if the checkpoint is not at hand; every answer is no
  /// then.
  StoredNames(const StoredTensors *stored, const LayerModules &modules);

  /// Whether the checkpoint has the module's matrix without the scales of this
  /// quantization.
  bool isPlain(const LayerModule &module,
               const QuantizationSpec &quantization) const;

  /// Whether the checkpoint has the scales of the module's matrix.
  bool hasScales(const LayerModule &module,
                 const QuantizationSpec &quantization) const;

  /// The type of the scales of MLX, which no field states: that in the
  /// checkpoint, unless minima need more digits.
  ScaleType chooseScale(const LayerModule &module,
                        const QuantizationSpec &quantization) const;

  /// Whether a quantized matrix has another name than one that is not, so that
  /// a missing scale is no sign of an incomplete checkpoint.
  static bool hasOwnName(const QuantizationSpec &quantization);

  /// The packing of a quantization in the checkpoint. One that its tool does
  /// not state follows from the names of the scales.
  Packing choosePacking(const LayerModule &module,
                        const QuantizationSpec &quantization) const;

  /// Whether gate and up are one tensor whose blocks of scales begin at its
  /// first row, so that a block has rows of both.
  bool cutsAcrossHalves(llvm::StringRef weight,
                        const QuantizationSpec &quantization,
                        const LayerSpec &spec) const;

private:
  bool has(const LayerModule &module, llvm::StringRef suffix) const;
  /// The names in the checkpoint of a module's tensor.
  llvm::SmallVector<std::string, 1> find(const LayerModule &module,
                                         llvm::StringRef suffix) const;

  const StoredTensors *stored;
  const LayerModules &modules;
  llvm::StringSet<> tensors;
};

} // namespace moec

#endif // MOEC_LIB_IMPORT_STOREDNAMES_H
