//===- Safetensors.cpp - read safetensors files -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Safetensors.h"
#include "../support/MappedFile.h"
#include "../support/Text.h"
#include "SafetensorsHeader.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace moert {

/// The format's own limit for the header.
static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Begin of the file that Git leaves if Git LFS has not fetched the contents.
static constexpr char kPointer[] = "version https://git-lfs";

/// Containers of experts that engines make of a model's GGUF file, for reading
/// one expert at a time. They lack routers and the meaning of blocks.
static constexpr const char *kExpertPacks[] = {"SGLANG-EXPERTPACK",
                                               "GGMLMOEPACK"};

Result<SafetensorsFile> SafetensorsFile::fromMemory(const void *data,
                                                    size_t bytes,
                                                    const std::string &name) {
  auto *start = static_cast<const uint8_t *>(data);
  auto fail = [&](const std::string &message) {
    return invalidArgument(name + ": " + message);
  };
  if (bytes < 8)
    return fail("the file has " + std::to_string(bytes) +
                " bytes; a safetensors file begins with 8 bytes of header "
                "length");
  if (bytes >= sizeof(kPointer) &&
      memcmp(start, kPointer, sizeof(kPointer) - 1) == 0)
    return fail("is a pointer of Git LFS, not the file itself; fetch it with "
                "'git lfs pull'");
  for (const char *name : kExpertPacks)
    if (bytes >= strlen(name) && memcmp(start, name, strlen(name)) == 0)
      return fail(std::string("is a container of experts (") + name +
                  "), which an engine has made of a model's file; give that "
                  "file, GGUF or safetensors");
  uint64_t headerBytes = 0;
  for (int i = 7; i >= 0; --i)
    headerBytes = headerBytes << 8 | start[i];
  if (headerBytes > kMaxHeaderBytes)
    return fail("header length " + std::to_string(headerBytes) +
                " exceeds the format's " + std::to_string(kMaxHeaderBytes) +
                "; this is not a safetensors file");
  if (headerBytes > bytes - 8)
    return fail("header length " + std::to_string(headerBytes) +
                " exceeds the " + std::to_string(bytes - 8) +
                " bytes that follow; the file is truncated");
  Result<SafetensorsHeader> header = parseSafetensorsHeader(
      reinterpret_cast<const char *>(start + 8), headerBytes);
  if (!header)
    return header.status().withContext(name);

  std::vector<SafetensorsHeaderEntry> &entries = header->tensors;
  std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const uint8_t *base = start + 8 + headerBytes;
  uint64_t dataBytes = bytes - 8 - headerBytes;
  SafetensorsFile file;
  file.metadataMap = std::move(header->metadata);
  uint64_t covered = 0;
  for (SafetensorsHeaderEntry &entry : entries) {
    auto failTensor = [&](const std::string &message) {
      return fail("tensor '" + printable(entry.name) + "': " + message);
    };
    std::string offsets = "data_offsets [" + std::to_string(entry.begin) +
                          ", " + std::to_string(entry.end) + "] ";
    if (entry.end < entry.begin)
      return failTensor(offsets + "end before they begin");
    if (entry.end > dataBytes)
      return failTensor(offsets + "exceed the " + std::to_string(dataBytes) +
                        " bytes of data; the file is truncated");
    if (entry.begin != covered)
      return failTensor(offsets +
                        (entry.begin < covered ? "overlap another tensor"
                                               : "leave a hole before them") +
                        "; " + std::to_string(covered) + " is expected first");
    Result<uint64_t> size = safetensorsBytes(entry.dtype, entry.shape);
    if (!size)
      return failTensor(size.status().message());
    if (*size != entry.end - entry.begin)
      return failTensor(
          offsets + "hold " + std::to_string(entry.end - entry.begin) +
          " bytes, " + dtypeName(entry.dtype) + " of shape " +
          listText(entry.shape) + " needs " + std::to_string(*size));
    covered = entry.end;
    file.index[entry.name] = file.tensors.size();
    file.tensors.push_back({std::move(entry.name), entry.dtype,
                            std::move(entry.shape), base + entry.begin,
                            static_cast<size_t>(*size),
                            /*blockType=*/""});
  }
  if (covered != dataBytes)
    return fail("the tensors cover " + std::to_string(covered) + " of " +
                std::to_string(dataBytes) +
                " bytes of data; every byte belongs to a tensor");
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.status();
  Result<SafetensorsFile> file =
      fromMemory(mapped->data(), mapped->bytes(), path);
  if (file)
    file->keep(mapped->share());
  return file;
}

SafetensorsFile
SafetensorsFile::fromEntries(std::vector<SafetensorsEntry> entries,
                             std::map<std::string, std::string> metadata) {
  SafetensorsFile file;
  file.tensors = std::move(entries);
  file.metadataMap = std::move(metadata);
  for (size_t i = 0; i < file.tensors.size(); ++i)
    file.index[file.tensors[i].name] = i;
  return file;
}

const SafetensorsEntry *SafetensorsFile::find(const std::string &name) const {
  auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[it->second];
}

} // namespace moert
