//===- LayerDescription.cpp - a layer's description as JSON -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerDescription.h"
#include "../support/RapidJson.h"

#include <vector>

namespace moert {

/// Maximum length of names and values from a file in messages.
static constexpr size_t kMostShown = 80;
/// Maximum nesting of objects and arrays; descriptions need half as much.
static constexpr size_t kMostDepth = 16;

namespace {

/// Receives the parser's events; numbers stay text.
class FieldHandler {
public:
  using Ch = char;
  using SizeType = rapidjson::SizeType;

  DescribedFields fields;

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON calls these names.
  bool Null() { return add("null"); }
  bool Bool(bool value) { return add(value ? "true" : "false"); }
  bool Int(int value) { return add(std::to_string(value)); }
  bool Uint(unsigned value) { return add(std::to_string(value)); }
  bool Int64(int64_t value) { return add(std::to_string(value)); }
  bool Uint64(uint64_t value) { return add(std::to_string(value)); }
  bool Double(double value) { return add(std::to_string(value)); }
  bool RawNumber(const char *text, SizeType length, bool) {
    return add(std::string(text, length));
  }

  bool String(const char *text, SizeType length, bool) {
    // Escape all but ASCII for messages.
    using Ascii = rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>,
                                    rapidjson::ASCII<>>;
    rapidjson::StringBuffer buffer;
    Ascii writer(buffer);
    writer.String(text, length);
    return add(buffer.GetString());
  }

  bool Key(const char *text, SizeType length, bool) {
    path.back() = std::string(text, length);
    return true;
  }

  bool StartObject() { return begin(/*isArray=*/false); }
  bool EndObject(SizeType) { return end(); }
  bool StartArray() { return begin(/*isArray=*/true); }
  bool EndArray(SizeType) { return end(); }
  // NOLINTEND(readability-identifier-naming)

private:
  std::string join() {
    std::string joined;
    for (size_t i = 0; i < path.size(); ++i)
      joined += (i == 0 ? "" : ".") +
                (next[i] < 0 ? path[i] : std::to_string(next[i]));
    return joined;
  }

  /// Sets the value at the current path and advances an array's index.
  bool add(std::string value) {
    fields[join()] = std::move(value);
    return advance();
  }

  bool advance() {
    if (!next.empty() && next.back() >= 0)
      ++next.back();
    return true;
  }

  bool begin(bool isArray) {
    if (path.size() == kMostDepth)
      return false;
    path.emplace_back();
    next.push_back(isArray ? 0 : -1);
    return true;
  }

  bool end() {
    path.pop_back();
    next.pop_back();
    return advance();
  }

  /// By depth: the key, and the index in an array, -1 in an object.
  std::vector<std::string> path;
  std::vector<int64_t> next;
};

} // namespace

Result<DescribedFields> readDescription(const std::string &json) {
  rapidjson::MemoryStream stream(json.data(), json.size());
  rapidjson::Reader reader;
  FieldHandler handler;
  constexpr unsigned flags = rapidjson::kParseIterativeFlag |
                             rapidjson::kParseValidateEncodingFlag |
                             rapidjson::kParseNumbersAsStringsFlag;
  if (rapidjson::ParseResult parsed = reader.Parse<flags>(stream, handler);
      parsed.IsError())
    return invalidArgument(
        "the description of the layer cannot be read at byte " +
        std::to_string(parsed.Offset()));
  handler.fields.erase("name");
  return std::move(handler.fields);
}

static std::string show(const DescribedFields &fields,
                        const std::string &path) {
  auto it = fields.find(path);
  if (it == fields.end())
    return "not given";
  return it->second.size() <= kMostShown
             ? it->second
             : it->second.substr(0, kMostShown) + "...";
}

static std::string showPath(const std::string &path) {
  std::string shown = path.substr(0, kMostShown);
  for (char &c : shown)
    if (c < ' ' || c > '~')
      c = '?';
  return "'" + shown + "'";
}

std::string compareDescriptions(const DescribedFields &other,
                                const DescribedFields &own) {
  auto differ = [&](const std::string &path) {
    return showPath(path) + " is " + show(other, path) +
           ", and this layer's is " + show(own, path);
  };
  // Values that differ say more than fields that come with one of them.
  for (const auto &[path, value] : own)
    if (auto it = other.find(path); it != other.end() && it->second != value)
      return differ(path);
  for (const auto &[path, value] : own)
    if (other.count(path) == 0)
      return differ(path);
  for (const auto &[path, value] : other)
    if (own.count(path) == 0)
      return differ(path);
  return "";
}

} // namespace moert
