//===- Gguf.cpp - read GGUF files -------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Source: the specification of GGUF (docs/gguf.md of ggml).
//
//===----------------------------------------------------------------------===//

#include "moert/Gguf.h"

#include "../support/MappedFile.h"
#include "../support/Text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

namespace moert {

namespace {

/// An element type, or blocks of elements.
struct GgmlType {
  uint32_t number;
  const char *name;
  int64_t elements, bytes;
  /// Set for elements that are not in blocks.
  std::optional<DType> dtype = std::nullopt;
};

constexpr GgmlType kTypes[] = {
    {0, "f32", 1, 4, DType::F32},
    {1, "f16", 1, 2, DType::F16},
    {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},
    {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},
    {10, "q2_K", 256, 84},
    {11, "q3_K", 256, 110},
    {12, "q4_K", 256, 144},
    {13, "q5_K", 256, 176},
    {14, "q6_K", 256, 210},
    {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98},
    {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},
    {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136},
    {24, "i8", 1, 1, DType::I8},
    {25, "i16", 1, 2, DType::I16},
    {26, "i32", 1, 4, DType::I32},
    {27, "i64", 1, 8, DType::I64},
    {28, "f64", 1, 8, DType::F64},
    {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2, DType::BF16},
    {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},
    {39, "mxfp4", 32, 17},
    {40, "nvfp4", 64, 36},
    {41, "q1_0", 128, 18},
};

enum class ValueType : uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};
constexpr uint32_t kNumValueTypes = 13;

/// Arrays with a number per layer are shorter; arrays of a vocabulary are
/// longer, and irrelevant to a layer.
constexpr uint64_t kMaxKeptNumbers = 4096;

/// Bytes of a value other than a string or array.
size_t getBytes(ValueType type) {
  switch (type) {
  case ValueType::U8:
  case ValueType::I8:
  case ValueType::Bool:
    return 1;
  case ValueType::U16:
  case ValueType::I16:
    return 2;
  case ValueType::U32:
  case ValueType::I32:
  case ValueType::F32:
    return 4;
  default:
    return 8;
  }
}

class Reader {
public:
  Reader(const uint8_t *data, size_t bytes, std::string name)
      : data(data), bytes(bytes), name(std::move(name)) {}

  Result<SafetensorsFile> run() {
    if (Status status = readAll(); !status)
      return status.withContext(name);
    return SafetensorsFile::fromEntries(std::move(entries),
                                        std::move(metadata));
  }

private:
  Status readAll();
  Status readMetadata();
  Status readValue(const std::string &key, ValueType type);
  Status readArray(const std::string &key);
  Status readTensor(uint64_t number);
  Status setOffsets();

  /// `what` names the item being read.
  Status failTruncated(const std::string &what, uint64_t needed) const {
    return invalidArgument(what + " needs " + std::to_string(needed) +
                           " bytes and the file has " +
                           std::to_string(bytes - at) +
                           " left; it is truncated, or not a GGUF file");
  }
  template <typename T>
  Status read(const std::string &what, T &value) {
    if (bytes - at < sizeof(T))
      return failTruncated(what, sizeof(T));
    // Files are little endian, and so are all supported machines.
    std::memcpy(&value, data + at, sizeof(T));
    at += sizeof(T);
    return Status::ok();
  }
  Status readString(const std::string &what, std::string &text) {
    uint64_t length;
    if (Status status = read("the length of " + what, length); !status)
      return status;
    if (length > bytes - at)
      return failTruncated(what, length);
    text.assign(reinterpret_cast<const char *>(data + at), size_t(length));
    at += size_t(length);
    return Status::ok();
  }
  Status readType(const std::string &key, ValueType &type) {
    uint32_t number;
    if (Status status =
            read("the type of key '" + printable(key) + "'", number);
        !status)
      return status;
    if (number >= kNumValueTypes)
      return invalidArgument("key '" + printable(key) + "' is of type " +
                             std::to_string(number) + "; the types are 0 to " +
                             std::to_string(kNumValueTypes - 1));
    type = ValueType(number);
    return Status::ok();
  }

  const uint8_t *data;
  size_t bytes;
  std::string name;
  size_t at = 0;
  uint64_t numTensors = 0, numKeys = 0;
  uint64_t alignment = 32;
  std::vector<SafetensorsEntry> entries;
  /// Per entry.
  std::vector<uint64_t> offsets;
  std::map<std::string, std::string> metadata;
};

template <typename T>
std::string showAs(const uint8_t *data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.*g",
                  std::numeric_limits<T>::max_digits10, double(value));
    return text;
  } else {
    return std::to_string(value);
  }
}

std::string show(ValueType type, const uint8_t *data) {
  switch (type) {
  case ValueType::U8:
    return showAs<uint8_t>(data);
  case ValueType::I8:
    return showAs<int8_t>(data);
  case ValueType::U16:
    return showAs<uint16_t>(data);
  case ValueType::I16:
    return showAs<int16_t>(data);
  case ValueType::U32:
    return showAs<uint32_t>(data);
  case ValueType::I32:
    return showAs<int32_t>(data);
  case ValueType::F32:
    return showAs<float>(data);
  case ValueType::Bool:
    return *data ? "true" : "false";
  case ValueType::U64:
    return showAs<uint64_t>(data);
  case ValueType::I64:
    return showAs<int64_t>(data);
  default:
    return showAs<double>(data);
  }
}

Status Reader::readAll() {
  constexpr char magic[] = {'G', 'G', 'U', 'F'};
  if (bytes < sizeof(magic) || std::memcmp(data, magic, sizeof(magic)) != 0)
    return invalidArgument("does not begin with 'GGUF'; it is not a GGUF file");
  at = sizeof(magic);
  uint32_t version;
  if (Status status = read("the version", version); !status)
    return status;
  constexpr uint32_t oldest = 2, newest = 3;
  if (version < oldest || version > newest)
    return invalidArgument("is of version " + std::to_string(version) +
                           "; versions 2 and 3 of little endian are read");
  if (Status status = read("the number of tensors", numTensors); !status)
    return status;
  if (Status status = read("the number of keys", numKeys); !status)
    return status;
  if (Status status = readMetadata(); !status)
    return status;
  for (uint64_t i = 0; i < numTensors; ++i)
    if (Status status = readTensor(i); !status)
      return status;
  return setOffsets();
}

Status Reader::readMetadata() {
  for (uint64_t i = 0; i < numKeys; ++i) {
    std::string key;
    if (Status status = readString("the name of key " + std::to_string(i), key);
        !status)
      return status;
    ValueType type;
    if (Status status = readType(key, type); !status)
      return status;
    if (metadata.count(key))
      return invalidArgument("key '" + printable(key) + "' is there twice");
    if (Status status = readValue(key, type); !status)
      return status;
  }
  if (auto it = metadata.find("general.alignment"); it != metadata.end()) {
    alignment = std::strtoull(it->second.c_str(), nullptr, 10);
    constexpr uint64_t unit = 8, most = 1 << 20;
    if (alignment == 0 || alignment % unit || alignment > most)
      return invalidArgument("'general.alignment' is " + it->second +
                             "; a multiple of 8 is accepted");
  }
  return Status::ok();
}

Status Reader::readValue(const std::string &key, ValueType type) {
  std::string what = "the value of key '" + printable(key) + "'";
  std::string &text = metadata[key];
  if (type == ValueType::Array)
    return readArray(key);
  if (type == ValueType::String)
    return readString(what, text);
  size_t size = getBytes(type);
  if (bytes - at < size)
    return failTruncated(what, size);
  text = show(type, data + at);
  at += size;
  return Status::ok();
}

Status Reader::readArray(const std::string &key) {
  ValueType type;
  if (Status status = readType(key, type); !status)
    return status;
  std::string what = "the array of key '" + printable(key) + "'";
  if (type == ValueType::Array)
    return invalidArgument("key '" + printable(key) +
                           "' is an array of arrays, which is not supported");
  uint64_t count;
  if (Status status = read("the length of " + what, count); !status)
    return status;
  if (type == ValueType::String) {
    std::string element;
    for (uint64_t i = 0; i < count; ++i)
      if (Status status = readString(what, element); !status)
        return status;
    return Status::ok();
  }
  size_t size = getBytes(type);
  if (count > (bytes - at) / size)
    return failTruncated(what, count > bytes ? count : count * size);
  if (count <= kMaxKeptNumbers) {
    std::string &text = metadata[key];
    for (uint64_t i = 0; i < count; ++i)
      text += (i ? "," : "[") + show(type, data + at + i * size);
    text += "]";
  }
  at += size_t(count) * size;
  return Status::ok();
}

Status Reader::readTensor(uint64_t number) {
  SafetensorsEntry entry;
  if (Status status = readString("the name of tensor " + std::to_string(number),
                                 entry.name);
      !status)
    return status;
  std::string tensor = "tensor '" + printable(entry.name) + "'";
  uint32_t rank;
  if (Status status = read("the rank of " + tensor, rank); !status)
    return status;
  constexpr uint32_t most = 4;
  if (rank > most)
    return invalidArgument(tensor + " has " + std::to_string(rank) +
                           " dimensions; 4 at most are accepted");
  uint64_t elements = 1;
  constexpr uint64_t limit = uint64_t(1) << 48;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t size;
    if (Status status = read("the shape of " + tensor, size); !status)
      return status;
    if (size == 0 || size > limit || elements > limit / size)
      return invalidArgument(
          tensor + " has a dimension of " + std::to_string(size) +
          "; sizes of at least 1 with a product of at most 2^48 are accepted");
    elements *= size;
    entry.shape.insert(entry.shape.begin(), int64_t(size));
  }
  uint32_t typeNumber;
  if (Status status = read("the type of " + tensor, typeNumber); !status)
    return status;
  const GgmlType *type = std::find_if(
      std::begin(kTypes), std::end(kTypes),
      [&](const GgmlType &one) { return one.number == typeNumber; });
  if (type == std::end(kTypes))
    return invalidArgument(tensor + " is of type " +
                           std::to_string(typeNumber) +
                           ", which is not a known type of ggml");
  entry.dtype = type->dtype.value_or(DType::U8);
  entry.bytes =
      size_t(elements * uint64_t(type->bytes) / uint64_t(type->elements));
  if (!type->dtype) {
    if (entry.shape.empty() || entry.shape.back() % type->elements)
      return invalidArgument(tensor + " of " + type->name + " has rows of " +
                             listText(entry.shape) +
                             ", which are not multiples of its blocks of " +
                             std::to_string(type->elements));
    entry.blockType = type->name;
    entry.shape.back() = entry.shape.back() / type->elements * type->bytes;
  }
  uint64_t offset;
  if (Status status = read("the offset of " + tensor, offset); !status)
    return status;
  offsets.push_back(offset);
  entries.push_back(std::move(entry));
  return Status::ok();
}

/// Sets the entries' data, which follow the padded header.
Status Reader::setOffsets() {
  uint64_t begin = (at + alignment - 1) / alignment * alignment;
  uint64_t size = begin < bytes ? bytes - begin : 0;
  std::set<std::string> names;
  std::vector<size_t> order(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    SafetensorsEntry &entry = entries[i];
    order[i] = i;
    std::string tensor = "tensor '" + printable(entry.name) + "'";
    if (!names.insert(entry.name).second)
      return invalidArgument(tensor + " is there twice");
    if (offsets[i] % alignment)
      return invalidArgument(
          tensor + " begins at " + std::to_string(offsets[i]) +
          ", which is not a multiple of " + std::to_string(alignment) +
          " ('general.alignment')");
    if (offsets[i] > size || entry.bytes > size - offsets[i])
      return invalidArgument(tensor + " has " + std::to_string(entry.bytes) +
                             " bytes from " + std::to_string(offsets[i]) +
                             " on, and the file " + std::to_string(size) +
                             " of data; it is truncated");
    entry.data = data + begin + offsets[i];
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  for (size_t i = 1; i < order.size(); ++i)
    if (offsets[order[i - 1]] + entries[order[i - 1]].bytes > offsets[order[i]])
      return invalidArgument("tensor '" + entries[order[i]].name +
                             "' overlaps tensor '" +
                             printable(entries[order[i - 1]].name) + "'");
  return Status::ok();
}

} // namespace

Result<SafetensorsFile> readGguf(const void *data, size_t bytes,
                                 const std::string &name) {
  return Reader(static_cast<const uint8_t *>(data), bytes, name).run();
}

Result<SafetensorsFile> openGguf(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.status();
  Result<SafetensorsFile> file =
      readGguf(mapped->data(), mapped->bytes(), path);
  if (file)
    file->keep(mapped->share());
  return file;
}

} // namespace moert
