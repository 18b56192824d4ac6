//===- SafetensorsWriter.cpp - write safetensors files ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/AtomicFile.h"
#include "../support/RapidJson.h"
#include "../support/Text.h"
#include "SafetensorsHeader.h"
#include "moert/Safetensors.h"

#include <algorithm>
#include <unordered_set>

namespace moert {

/// Alignment of the data in the file, and so in its mapping.
static constexpr size_t kDataAlignment = 64;

static Status checkTensors(const std::vector<SafetensorsTensor> &tensors) {
  std::unordered_set<std::string> names;
  for (const SafetensorsTensor &tensor : tensors) {
    std::string where = "tensor '" + printable(tensor.name) + "'";
    if (tensor.name.empty() || tensor.name == "__metadata__")
      return invalidArgument(where + ": not a name for a tensor");
    if (!names.insert(tensor.name).second)
      return invalidArgument(where + ": given twice");
    for (int64_t size : tensor.shape)
      if (size < 0)
        return invalidArgument(where + ": shape " + listText(tensor.shape) +
                               " has a negative size");
    Result<uint64_t> bytes = safetensorsBytes(tensor.dtype, tensor.shape);
    if (!bytes)
      return bytes.status().withContext(where);
    if (*bytes != tensor.bytes)
      return invalidArgument(where + ": " + std::to_string(tensor.bytes) +
                             " bytes given, " + dtypeName(tensor.dtype) +
                             " of shape " + listText(tensor.shape) + " has " +
                             std::to_string(*bytes));
    if (tensor.bytes > 0 && !tensor.data)
      return invalidArgument(where + ": the data pointer is null");
  }
  return Status::ok();
}

std::string
printSafetensorsHeader(const std::vector<SafetensorsTensor> &tensors,
                       const std::map<std::string, std::string> &metadata) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  auto writeString = [&](const std::string &text) {
    writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
  };
  writer.StartObject();
  if (!metadata.empty()) {
    writeString("__metadata__");
    writer.StartObject();
    for (const auto &[key, value] : metadata) {
      writeString(key);
      writeString(value);
    }
    writer.EndObject();
  }
  uint64_t offset = 0;
  for (const SafetensorsTensor &tensor : tensors) {
    writeString(tensor.name);
    writer.StartObject();
    writeString("dtype");
    writeString(safetensorsName(tensor.dtype));
    writeString("shape");
    writer.StartArray();
    for (int64_t size : tensor.shape)
      writer.Int64(size);
    writer.EndArray();
    writeString("data_offsets");
    writer.StartArray();
    writer.Uint64(offset);
    offset += tensor.bytes;
    writer.Uint64(offset);
    writer.EndArray();
    writer.EndObject();
  }
  writer.EndObject();
  std::string text(buffer.GetString(), buffer.GetSize());
  text.resize((text.size() + 8 + kDataAlignment - 1) / kDataAlignment *
                      kDataAlignment -
                  8,
              ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

Status writeSafetensors(const std::string &path,
                        const std::vector<SafetensorsTensor> &tensors,
                        const std::map<std::string, std::string> &metadata) {
  if (Status status = checkTensors(tensors); !status)
    return status.withContext(path);
  // Sort by descending element width, so that every tensor is aligned to its
  // elements.
  std::vector<SafetensorsTensor> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) {
    int64_t aBits = dtypeBits(a.dtype), bBits = dtypeBits(b.dtype);
    return aBits != bBits ? aBits > bBits : a.name < b.name;
  });
  std::string header = printSafetensorsHeader(sorted, metadata);
  std::vector<FilePart> parts = {{header.data(), header.size()}};
  for (const SafetensorsTensor &tensor : sorted)
    parts.push_back({tensor.data, tensor.bytes});
  return writeFileWhole(path, parts);
}

} // namespace moert
