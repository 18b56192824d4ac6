//===- Gguf.h - read GGUF files ---------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_GGUF_H
#define MOERT_GGUF_H

#include "moert/Safetensors.h"

namespace moert {

/// Maps and verifies a GGUF file of ggml, version 2 or 3, little endian, as a
/// whole model: magic, counts, keys, types, shapes, and offsets that are inside
/// the data and do not overlap. A failure names the file and the field. Shapes
/// are in the order of safetensors, the K dimension last. For a tensor of
/// blocks (`blockType`) the last size is in bytes and elements are U8. Strings
/// and numbers of the metadata are kept as text, and arrays of up to 4096
/// numbers as "[1,2]"; other arrays are skipped.
Result<SafetensorsFile> openGguf(const std::string &path);

/// Reads a file in memory; `name` replaces the path in messages, and `data`
/// outlives the result.
Result<SafetensorsFile> readGguf(const void *data, size_t bytes,
                                 const std::string &name);

} // namespace moert

#endif // MOERT_GGUF_H
