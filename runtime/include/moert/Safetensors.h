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

/// One tensor of an open file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// Within the file's mapping; aligned to no more than the writer cared for.
  const uint8_t *data = nullptr;
  size_t bytes = 0;
  /// What ggml calls the blocks that elements of a GGUF file are in ("q8_0");
  /// empty for elements that are not.
  std::string blockType;
};

/// A verified safetensors file, or one of another format (Gguf.h). Its data are
/// mapped, so a tensor that nobody looks at is never read.
class SafetensorsFile {
public:
  /// Maps and verifies a file: header length, JSON, known dtypes, shapes that
  /// match the offsets, and offsets that cover the data without hole or
  /// overlap. A failure names the file and the field.
  static Result<SafetensorsFile> open(const std::string &path);

  /// The same for a file held in memory; `name` stands for the path in
  /// messages, and `data` outlives the result.
  static Result<SafetensorsFile> fromMemory(const void *data, size_t bytes,
                                            const std::string &name);

  /// Tensors that another format's reader has verified, with different names.
  static SafetensorsFile
  fromEntries(std::vector<SafetensorsEntry> entries,
              std::map<std::string, std::string> metadata);
  /// Keeps alive what the data are in.
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

/// Writes a file under a temporary name next to `path` and renames it, so that
/// `path` never holds a partial file. The bytes written depend on the tensors
/// alone, not on their order.
Status
writeSafetensors(const std::string &path,
                 const std::vector<SafetensorsTensor> &tensors,
                 const std::map<std::string, std::string> &metadata = {});

} // namespace moert

#endif // MOERT_SAFETENSORS_H
