//===- SafetensorsHeader.h - a safetensors file's header --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_TENSORS_SAFETENSORSHEADER_H
#define MOERT_SRC_TENSORS_SAFETENSORSHEADER_H

#include "moert/DType.h"
#include "moert/Safetensors.h"
#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moert {

/// A tensor as stated by the header; offsets count from the end of the header
/// and are not yet checked against the data.
struct SafetensorsHeaderEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsHeaderEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Parses the JSON text of a header. A failure names the field or the byte.
Result<SafetensorsHeader> parseSafetensorsHeader(const char *text,
                                                 size_t bytes);

/// Prints the part of a file before the tensors' data, which are consecutive:
/// the header's length and text, padded so that data begin at a multiple of 64.
std::string
printSafetensorsHeader(const std::vector<SafetensorsTensor> &tensors,
                       const std::map<std::string, std::string> &metadata);

/// Bytes of a tensor's data; fails on overflow or a fraction of a byte.
Result<uint64_t> safetensorsBytes(DType dtype,
                                  const std::vector<int64_t> &shape);

} // namespace moert

#endif // MOERT_SRC_TENSORS_SAFETENSORSHEADER_H
