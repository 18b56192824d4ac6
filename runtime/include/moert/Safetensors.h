//===- Safetensors.h - read and write safetensors files ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SAFETENSORS_H
#define MOERT_SAFETENSORS_H

#include "moert/DType.h"
#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moert {

class Device;

/// One tensor of an open file, or of a caller's memory.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// In the file's mapping, with whatever alignment the writer chose.
  const uint8_t *data = nullptr;
  size_t bytes = 0;
  /// For tensors of a GGUF file that are stored in blocks: ggml's name of the
  /// format ("q8_0"); else empty.
  std::string blockType;
  /// Null if `data` is host memory; else the device that owns the memory.
  Device *device = nullptr;
};

/// A verified safetensors file, or one of another format (Gguf.h). Data are
/// mapped, so that unused tensors are never read.
class SafetensorsFile {
public:
  /// Maps and verifies a file: header length, JSON, known dtypes, shapes that
  /// match the offsets, and offsets that cover the data without gaps or
  /// overlap. A failure names the file and the field.
  static Result<SafetensorsFile> open(const std::string &path);

  /// Reads a file in memory; `name` replaces the path in messages, and `data`
  /// outlives the result.
  static Result<SafetensorsFile> fromMemory(const void *data, size_t bytes,
                                            const std::string &name);

  /// Wraps tensors that another format's reader has verified, with distinct
  /// names.
  static SafetensorsFile
  fromEntries(std::vector<SafetensorsEntry> entries,
              std::map<std::string, std::string> metadata);
  /// Keeps the memory of the data alive.
  void keep(std::shared_ptr<const void> owner) { mapping = std::move(owner); }

  /// In the order of the data.
  const std::vector<SafetensorsEntry> &entries() const { return tensors; }
  /// The entry called `name`, or null.
  const SafetensorsEntry *find(const std::string &name) const;
  const std::map<std::string, std::string> &metadata() const {
    return metadataMap;
  }

private:
  /// Keeps the mapping alive; null for a file in memory.
  std::shared_ptr<const void> mapping;
  std::vector<SafetensorsEntry> tensors;
  std::map<std::string, size_t> index;
  std::map<std::string, std::string> metadataMap;
};

/// One tensor to write.
struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  const void *data = nullptr;
  size_t bytes = 0;
};

/// Writes a temporary file next to `path` and renames it, so that `path` never
/// holds a partial file. The bytes written depend on the tensors, not on their
/// order.
Status
writeSafetensors(const std::string &path,
                 const std::vector<SafetensorsTensor> &tensors,
                 const std::map<std::string, std::string> &metadata = {});

} // namespace moert

#endif // MOERT_SAFETENSORS_H
