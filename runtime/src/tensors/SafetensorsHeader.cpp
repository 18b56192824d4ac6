//===- SafetensorsHeader.cpp - a safetensors file's header ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SafetensorsHeader.h"
#include "../support/RapidJson.h"
#include "../support/Text.h"
#include "moert/TextEncoding.h"

#include <limits>
#include <unordered_set>

namespace moert {

namespace {

/// Receives the parser's events and builds the header. Each state accepts one
/// or two events; any other event, or nesting deeper than a header's, ends the
/// parse.
class HeaderHandler {
public:
  using Ch = char;
  using SizeType = rapidjson::SizeType;

  SafetensorsHeader header;
  Status failure;

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON calls these names.
  bool Null() { return unexpected("null"); }
  bool Bool(bool) { return unexpected("a boolean"); }
  bool Double(double) { return unexpected("a fraction"); }
  bool Int(int value) { return integer(value); }
  bool Int64(int64_t value) { return integer(value); }
  bool Uint(unsigned value) { return integer(value); }
  bool Uint64(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return unexpected("an integer beyond 64 bits");
    return integer(static_cast<int64_t>(value));
  }
  bool RawNumber(const char *, SizeType, bool) {
    return unexpected("a number");
  }

  bool String(const char *text, SizeType length, bool) {
    std::string value(text, length);
    if (state == State::MetadataValue) {
      header.metadata[key] = std::move(value);
      state = State::Metadata;
      return true;
    }
    if (state != State::DTypeValue)
      return unexpected("a string");
    std::optional<DType> dtype = parseSafetensorsDType(value);
    if (!dtype)
      return fail("dtype '" + printable(value, 40) + "' is not supported; " +
                  dtypeNames() + " are");
    current.dtype = *dtype;
    hasDType = true;
    state = State::Tensor;
    return true;
  }

  bool StartObject() {
    switch (state) {
    case State::Start:
      state = State::Top;
      return true;
    case State::TensorStart:
      state = State::Tensor;
      return true;
    case State::MetadataStart:
      state = State::Metadata;
      return true;
    default:
      return unexpected("an object");
    }
  }

  bool Key(const char *text, SizeType length, bool) {
    key.assign(text, length);
    switch (state) {
    case State::Top:
      if (!names.insert(key).second) {
        tensorName = key;
        return fail("the name occurs twice");
      }
      tensorName = key;
      if (key == "__metadata__") {
        state = State::MetadataStart;
        return true;
      }
      current = SafetensorsHeaderEntry();
      current.name = key;
      hasDType = hasShape = hasOffsets = false;
      state = State::TensorStart;
      return true;
    case State::Metadata:
      state = State::MetadataValue;
      return true;
    case State::Tensor:
      return tensorKey();
    default:
      return unexpected("a key");
    }
  }

  bool EndObject(SizeType) {
    if (state == State::Top) {
      state = State::Done;
      return true;
    }
    if (state == State::Tensor) {
      const char *missing = !hasDType     ? "dtype"
                            : !hasShape   ? "shape"
                            : !hasOffsets ? "data_offsets"
                                          : nullptr;
      if (missing)
        return fail(std::string("the field '") + missing + "' is missing");
      header.tensors.push_back(std::move(current));
    }
    state = State::Top;
    return true;
  }

  bool StartArray() {
    if (state == State::ShapeStart) {
      state = State::Shape;
      return true;
    }
    if (state == State::OffsetsStart) {
      state = State::Offsets;
      return true;
    }
    return unexpected("an array");
  }

  bool EndArray(SizeType) {
    if (state == State::Offsets && numOffsets != 2)
      return fail("data_offsets has " + std::to_string(numOffsets) +
                  " elements; 2 are expected");
    (state == State::Offsets ? hasOffsets : hasShape) = true;
    state = State::Tensor;
    return true;
  }
  // NOLINTEND(readability-identifier-naming)

private:
  enum class State {
    Start,
    Top,
    MetadataStart,
    Metadata,
    MetadataValue,
    TensorStart,
    Tensor,
    DTypeValue,
    ShapeStart,
    Shape,
    OffsetsStart,
    Offsets,
    Done,
  };

  bool tensorKey() {
    bool known = true, again = false;
    if (key == "dtype") {
      again = hasDType;
      state = State::DTypeValue;
    } else if (key == "shape") {
      again = hasShape;
      state = State::ShapeStart;
    } else if (key == "data_offsets") {
      again = hasOffsets;
      numOffsets = 0;
      state = State::OffsetsStart;
    } else {
      known = false;
    }
    if (again)
      return fail("the field '" + printable(key) + "' occurs twice");
    return known || fail("the field '" + printable(key, 40) +
                         "' is unknown; dtype, shape and data_offsets are "
                         "expected");
  }

  bool integer(int64_t value) {
    if (state != State::Shape && state != State::Offsets)
      return unexpected("an integer");
    if (value < 0)
      return fail(
          std::string(state == State::Shape ? "shape" : "data_offsets") +
          " holds " + std::to_string(value) + "; integers >= 0 are expected");
    if (state == State::Shape)
      current.shape.push_back(value);
    else if (numOffsets++ < 2)
      (numOffsets == 1 ? current.begin : current.end) = value;
    return true;
  }

  bool fail(const std::string &message) {
    std::string where = tensorName.empty() ? "header"
                        : tensorName == "__metadata__"
                            ? "__metadata__"
                            : "tensor '" + printable(tensorName) + "'";
    failure = invalidArgument(where + ": " + message);
    return false;
  }

  bool unexpected(const char *found) {
    return fail(std::string(expectedText()) + " expected, " + found + " found");
  }

  const char *expectedText() const {
    switch (state) {
    case State::Start:
      return "an object of tensors";
    case State::MetadataStart:
      return "an object of strings";
    case State::MetadataValue:
      return "a string";
    case State::TensorStart:
      return "an object with dtype, shape and data_offsets";
    case State::DTypeValue:
      return "a string for 'dtype'";
    case State::ShapeStart:
      return "an array for 'shape'";
    case State::OffsetsStart:
      return "an array for 'data_offsets'";
    case State::Shape:
    case State::Offsets:
      return "an integer";
    case State::Top:
    case State::Metadata:
    case State::Tensor:
      return "a key";
    case State::Done:
      return "the end";
    }
    return "nothing";
  }

  static std::string dtypeNames() {
    std::string names;
    for (int i = 0; i <= static_cast<int>(kLastDType); ++i)
      names += (i > 0 ? ", " : "") +
               std::string(safetensorsName(static_cast<DType>(i)));
    return names;
  }

  State state = State::Start;
  std::string key, tensorName;
  SafetensorsHeaderEntry current;
  bool hasDType = false, hasShape = false, hasOffsets = false;
  int numOffsets = 0;
  std::unordered_set<std::string> names;
};

} // namespace

Result<SafetensorsHeader> parseSafetensorsHeader(const char *text,
                                                 size_t bytes) {
  if (const char *encoding = explainEncoding(text, bytes))
    return invalidArgument(std::string("header: not JSON: ") + encoding);
  // Iterative, so that nesting uses no stack; the handler limits it anyway.
  constexpr unsigned kFlags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
  rapidjson::MemoryStream stream(text, bytes);
  rapidjson::Reader reader;
  HeaderHandler handler;
  rapidjson::ParseResult result = reader.Parse<kFlags>(stream, handler);
  if (!handler.failure)
    return handler.failure;
  if (result.IsError())
    return invalidArgument("header: byte " + std::to_string(result.Offset()) +
                           ": " + rapidjson::GetParseError_En(result.Code()));
  // The stream also ends at a zero byte, whatever follows.
  if (stream.Tell() != bytes)
    return invalidArgument("header: byte " + std::to_string(stream.Tell()) +
                           " is zero; JSON text is expected");
  return std::move(handler.header);
}

Result<uint64_t> safetensorsBytes(DType dtype,
                                  const std::vector<int64_t> &shape) {
  uint64_t bits = dtypeBits(dtype);
  bool overflow = false, isEmpty = false;
  for (int64_t size : shape) {
    isEmpty |= size == 0;
    overflow |=
        __builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits);
  }
  if (isEmpty)
    return uint64_t(0);
  if (overflow)
    return outOfRange("shape " + listText(shape) +
                      " has more bytes than 64 "
                      "bits count");
  if (bits % 8 != 0)
    return invalidArgument("shape " + listText(shape) + " of " +
                           dtypeName(dtype) +
                           " does not fill whole bytes; an even number of "
                           "elements is expected");
  return bits / 8;
}

} // namespace moert
