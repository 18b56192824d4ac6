//===- Json.cpp - a JSON document with source ranges ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// RapidJSON's SAX reader parses the grammar in iterative mode, with its own
// stack on the heap. Its events carry no positions, so the handler here finds
// the range of each token itself while it builds the tree.
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Json.h"

#include "moert/TextEncoding.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>

// RapidJSON grows its stack by adding an offset to a null pointer, which is
// undefined behaviour according to UBSan. Nothing is read through it, and the
// header is third-party code.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), \
                             apply_to = function)
#endif
#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>
#ifdef __clang__
#pragma clang attribute pop
#endif

using namespace llvm;

namespace moec::json {

namespace {

/// The text as a RapidJSON input stream. RapidJSON copies its own streams while
/// it reads a token, so that their `Tell` lags behind during an event.
class TextStream {
public:
  using Ch = char;

  explicit TextStream(StringRef text) : text(text) {}

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON calls these names.
  Ch Peek() const { return position < text.size() ? text[position] : '\0'; }
  Ch Take() { return position < text.size() ? text[position++] : '\0'; }
  size_t Tell() const { return position; }

  // Output methods of the stream concept, for in-situ parsing; not used.
  Ch *PutBegin() { return nullptr; }
  void Put(Ch) {}
  void Flush() {}
  size_t PutEnd(Ch *) { return 0; }
  // NOLINTEND(readability-identifier-naming)

private:
  StringRef text;
  size_t position = 0;
};

/// Builds the tree from the events. An event returns false to stop the reader
/// after reporting an error.
class TreeBuilder {
public:
  TreeBuilder(const SourceText &source, const TextStream &stream,
              Diagnostics &diags)
      : source(source), stream(stream), diags(diags) {}

  Value takeRoot() { return std::move(root); }

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON calls these names.
  bool Null() { return scalar(Value::Kind::Null); }
  bool Bool(bool value) {
    return scalar(Value::Kind::Boolean, /*text=*/"", value);
  }
  bool String(const char *text, rapidjson::SizeType length, bool) {
    return scalar(Value::Kind::String, StringRef(text, length));
  }
  bool RawNumber(const char *text, rapidjson::SizeType length, bool) {
    return scalar(Value::Kind::Number, StringRef(text, length));
  }

  // Required by the handler concept; numbers arrive as text only.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

  bool StartObject() { return open(Value::Kind::Object); }
  bool StartArray() { return open(Value::Kind::Array); }
  bool EndObject(rapidjson::SizeType) { return close(); }
  bool EndArray(rapidjson::SizeType) { return close(); }

  bool Key(const char *text, rapidjson::SizeType length, bool) {
    StringRef name(text, length);
    SourceRange range = nextToken(stream.Tell());
    Frame &frame = stack.back();
    if (!frame.names.insert(name).second) {
      const Member *first = frame.value.find(name);
      diags.error(source, range,
                  "member " + quote(name) + " is given twice, first in line " +
                      Twine(source.getLineColumn(first->nameRange.begin).line));
      return false;
    }
    frame.value.members.push_back({name.str(), range, Value()});
    return true;
  }
  // NOLINTEND(readability-identifier-naming)

private:
  /// An open object or array.
  struct Frame {
    Value value;
    StringSet<> names;
  };

  /// The range of the token that ends at `end`. Only blanks, commas and colons
  /// separate tokens.
  SourceRange nextToken(size_t end) {
    StringRef text = source.getText();
    size_t begin = std::min(text.find_first_not_of(" \t\r\n,:", last), end);
    last = end;
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }

  /// The range of the next token, which is a bracket.
  SourceRange nextBracket() {
    SourceRange range = nextToken(source.getText().size());
    last = range.end = range.begin + 1;
    return range;
  }

  bool scalar(Value::Kind kind, StringRef text = "", bool boolean = false) {
    Value value;
    value.kind = kind;
    value.boolean = boolean;
    value.text = text.str();
    value.range = nextToken(stream.Tell());
    return add(std::move(value));
  }

  bool open(Value::Kind kind) {
    Frame frame;
    frame.value.kind = kind;
    frame.value.range = nextBracket();
    if (stack.size() == kMaxDepth) {
      diags.error(source, frame.value.range,
                  "brackets nest deeper than the " + Twine(kMaxDepth) +
                      " levels that are read");
      return false;
    }
    stack.push_back(std::move(frame));
    return true;
  }

  bool close() {
    Value value = std::move(stack.back().value);
    stack.pop_back();
    value.range.end = nextBracket().end;
    return add(std::move(value));
  }

  /// Adds a complete value to the innermost open object or array.
  bool add(Value value) {
    if (stack.empty())
      root = std::move(value);
    else if (Value &parent = stack.back().value;
             parent.kind == Value::Kind::Array)
      parent.elements.push_back(std::move(value));
    else
      parent.members.back().value = std::move(value);
    return true;
  }

  const SourceText &source;
  const TextStream &stream;
  Diagnostics &diags;
  std::vector<Frame> stack;
  Value root;
  /// End of the preceding token.
  size_t last = 0;
};

} // namespace

const Member *Value::find(StringRef name) const {
  auto it = find_if(members,
                    [&](const Member &member) { return member.name == name; });
  return it == members.end() ? nullptr : &*it;
}

bool Value::isIntegerLiteral() const {
  return kind == Kind::Number &&
         StringRef(text).find_first_of(".eE") == StringRef::npos;
}

std::optional<int64_t> Value::getInteger() const {
  int64_t result;
  if (!isIntegerLiteral() || StringRef(text).getAsInteger(10, result))
    return std::nullopt;
  return result;
}

std::optional<double> Value::getDouble() const {
  double result;
  if (kind != Kind::Number || StringRef(text).getAsDouble(result) ||
      !std::isfinite(result))
    return std::nullopt;
  return result;
}

StringRef describe(Value::Kind kind) {
  switch (kind) {
  case Value::Kind::Null:
    return "null";
  case Value::Kind::Boolean:
    return "a boolean";
  case Value::Kind::Number:
    return "a number";
  case Value::Kind::String:
    return "a string";
  case Value::Kind::Array:
    return "a list";
  case Value::Kind::Object:
    return "an object";
  }
  llvm_unreachable("every kind is listed");
}

FailureOr<Value> parse(const SourceText &source, Diagnostics &diags) {
  StringRef text = source.getText();
  if (text.size() > kMaxBytes) {
    diags.error(source.getName(), "has " + Twine(text.size()) +
                                      " bytes; JSON of at most " +
                                      Twine(kMaxBytes) + " bytes is read");
    return failure();
  }
  if (const char *encoding = moert::explainEncoding(text.data(), text.size())) {
    // In another encoding the line cannot be shown.
    diags.error(source.getName(), Twine("not JSON: ") + encoding);
    return failure();
  }
  // The reader would treat a null character as the end of the text.
  if (size_t null = text.find('\0'); null != StringRef::npos) {
    diags.error(source, {uint32_t(null), uint32_t(null + 1)},
                "not JSON: there is a null character");
    return failure();
  }

  // NaN and Infinity are not JSON, but Python writes them into configurations.
  // `getDouble` returns none for them.
  constexpr unsigned flags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag |
      rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseNanAndInfFlag;
  TextStream stream(text);
  TreeBuilder builder(source, stream, diags);
  rapidjson::Reader reader;
  rapidjson::ParseResult result = reader.Parse<flags>(stream, builder);
  if (result)
    return builder.takeRoot();
  // A handler that stops the reader has already reported the error.
  if (result.Code() != rapidjson::kParseErrorTermination) {
    uint32_t offset = std::min(result.Offset(), text.size());
    StringRef reason = rapidjson::GetParseError_En(result.Code());
    diags.error(source, {offset, offset + 1}, "not JSON: " + reason.rtrim('.'));
  }
  return failure();
}

} // namespace moec::json
