//===- GgufMetadata.h - GGUF metadata against a layer -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_GGUFMETADATA_H
#define MOEC_IMPORT_GGUFMETADATA_H

#include "moec/Import/LayerSpec.h"

#include <map>

namespace moec {

/// Compares the metadata of a GGUF file, as text (moert/Gguf.h), with the
/// description of a layer. Returns a message that names the first key that
/// disagrees, its value and the field of the description; none if they agree.
/// Absent keys are skipped. `layer` selects the element of an array with one
/// value per layer.
std::optional<std::string>
findContradiction(const LayerSpec &spec,
                  const std::map<std::string, std::string> &metadata,
                  std::optional<int64_t> layer);

} // namespace moec

#endif // MOEC_IMPORT_GGUFMETADATA_H
