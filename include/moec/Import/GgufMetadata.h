//===- GgufMetadata.h - what a GGUF file says of a layer --------*- C++ -*-===//
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

/// Compares a GGUF file's metadata, as text (moert/Gguf.h), with a layer's
/// description. Returns a message that names the first key, its value, and the
/// field that says otherwise; none where they agree. A key that is absent says
/// nothing. `layer` picks the value of an array that has one for each layer.
std::optional<std::string>
findContradiction(const LayerSpec &spec,
                  const std::map<std::string, std::string> &metadata,
                  std::optional<int64_t> layer);

} // namespace moec

#endif // MOEC_IMPORT_GGUFMETADATA_H
