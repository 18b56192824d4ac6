//===- CheckpointIndex.cpp - reads a checkpoint's index ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/RapidJson.h"
#include "../support/Text.h"
#include "moert/Checkpoint.h"
#include "moert/TextEncoding.h"

#include <algorithm>

namespace moert {

/// Whether `file` is in the folder or in one below it.
static bool staysInside(const std::string &file) {
  if (file.find('\0') != std::string::npos)
    return false;
  for (size_t begin = 0; begin <= file.size();) {
    size_t end = std::min(file.find('/', begin), file.size());
    std::string part = file.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..")
      return false;
    begin = end + 1;
  }
  return true;
}

namespace {

/// Receives the parser's events. Everything outside `weight_map` is skipped.
class IndexHandler {
public:
  using Ch = char;
  using SizeType = rapidjson::SizeType;

  CheckpointIndex index;
  bool hasMap = false;
  std::string failure;

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON calls these names.
  bool Null() { return value("null"); }
  bool Bool(bool) { return value("a boolean"); }
  bool Int(int) { return value("a number"); }
  bool Uint(unsigned) { return value("a number"); }
  bool Int64(int64_t) { return value("a number"); }
  bool Uint64(uint64_t) { return value("a number"); }
  bool Double(double) { return value("a number"); }
  bool RawNumber(const char *, SizeType, bool) { return value("a number"); }

  bool String(const char *text, SizeType length, bool) {
    if (!isInMap || depth != 2)
      return value("a string");
    std::string file(text, length);
    if (!staysInside(file))
      return fail("weight_map: tensor '" + printable(key) + "': '" +
                  printable(file) +
                  "' is not a file of this folder; names without '..' and "
                  "without a leading '/' are accepted");
    if (!index.emplace(key, std::move(file)).second)
      return fail("weight_map: tensor '" + printable(key) + "' occurs twice");
    return true;
  }

  bool Key(const char *text, SizeType length, bool) {
    key.assign(text, length);
    if (depth != 1)
      return true;
    isMap = key == "weight_map";
    return !isMap || !hasMap || fail("'weight_map' occurs twice");
  }

  bool StartObject() {
    if (depth == 1 && isMap) {
      isInMap = hasMap = true;
      ++depth;
      return true;
    }
    if (!value("an object"))
      return false;
    ++depth;
    return true;
  }

  bool EndObject(SizeType) { return end(); }

  bool StartArray() {
    if (depth == 0)
      return fail("an object with 'weight_map' expected, an array found");
    if (!value("an array"))
      return false;
    ++depth;
    return true;
  }

  bool EndArray(SizeType) { return end(); }
  // NOLINTEND(readability-identifier-naming)

private:
  /// Handles any value, whether relevant or not.
  bool value(const char *found) {
    if (depth == 0 && std::string(found) != "an object")
      return fail(std::string("an object with 'weight_map' expected, ") +
                  found + " found");
    if (depth == 1 && isMap)
      return fail(std::string("'weight_map': an object with the file of each "
                              "tensor expected, ") +
                  found + " found");
    if (isInMap)
      return fail("weight_map: tensor '" + printable(key) +
                  "': the name of a file expected, " + found + " found");
    return true;
  }

  bool end() {
    --depth;
    if (depth == 1)
      isInMap = isMap = false;
    return true;
  }

  bool fail(std::string message) {
    failure = std::move(message);
    return false;
  }

  /// Number of enclosing objects and arrays.
  size_t depth = 0;
  /// Whether the next value is `weight_map`, and whether the parser is inside
  /// it.
  bool isMap = false, isInMap = false;
  std::string key;
};

} // namespace

Result<CheckpointIndex> parseCheckpointIndex(const char *text, size_t bytes) {
  if (const char *encoding = explainEncoding(text, bytes))
    return invalidArgument(std::string("not JSON: ") + encoding);
  // Iterative, so that nesting uses no stack.
  constexpr unsigned kFlags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  rapidjson::MemoryStream stream(text, bytes);
  rapidjson::Reader reader;
  IndexHandler handler;
  rapidjson::ParseResult result = reader.Parse<kFlags>(stream, handler);
  // The stream also ends at a zero byte, whatever follows.
  bool isCut = !result.IsError() && stream.Tell() != bytes;
  size_t offset = result.IsError() ? result.Offset() : stream.Tell();
  auto fail = [&](const std::string &message) {
    offset = std::min(offset, bytes);
    auto line = 1 + std::count(text, text + offset, '\n');
    size_t begin = offset;
    while (begin > 0 && text[begin - 1] != '\n')
      --begin;
    return invalidArgument(std::to_string(line) + ":" +
                           std::to_string(offset - begin + 1) + ": " + message);
  };
  if (!handler.failure.empty())
    return fail(handler.failure);
  if (result.IsError())
    return fail(std::string("not JSON: ") +
                rapidjson::GetParseError_En(result.Code()));
  if (isCut)
    return fail("not JSON: a zero byte");
  if (!handler.hasMap)
    return invalidArgument(
        "'weight_map' is missing, which maps each tensor to its file");
  return std::move(handler.index);
}

} // namespace moert
