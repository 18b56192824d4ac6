//===- Json.h - a JSON document that knows where it was read ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Strict JSON (RFC 8259, UTF-8) as a tree that keeps the source range of every
// value and of every member name, so that an error found later can point at
// it. Reading never recurses, whatever the text.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_JSON_H
#define MOEC_SUPPORT_JSON_H

#include "moec/Support/Diagnostics.h"

#include <vector>

namespace moec::json {

/// Brackets may nest this deep. Descriptions of layers need four levels; the
/// bound keeps every walk of a document, its destruction included, shallow.
constexpr unsigned kMaxDepth = 64;

/// Largest text that is read. Real configurations have a few kilobytes.
constexpr uint64_t kMaxBytes = uint64_t(4) << 20;

struct Member;

/// One JSON value. Which fields have a meaning depends on `kind`.
struct Value {
  enum class Kind { Null, Boolean, Number, String, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  /// Where the value stands, its quotes or brackets included.
  SourceRange range;
  /// The decoded characters of a string, or the literal text of a number: a
  /// number keeps its digits until somebody asks for a type.
  std::string text;
  std::vector<Value> elements;
  std::vector<Member> members;

  bool isNull() const { return kind == Kind::Null; }
  bool isObject() const { return kind == Kind::Object; }

  /// The member called `name`, or null.
  const Member *find(llvm::StringRef name) const;

  /// The value of a number written as an integer that 64 bits can hold.
  std::optional<int64_t> getInteger() const;
  /// True for a number written without fraction and exponent, of any size.
  bool isIntegerLiteral() const;
  /// The double nearest to a number; none when it is not finite.
  std::optional<double> getDouble() const;
};

/// A member of an object, in the order of the file.
struct Member {
  std::string name;
  SourceRange nameRange;
  Value value;
};

/// "an object", "a string", ...: a kind as an error message names it.
llvm::StringRef describe(Value::Kind kind);

/// Reads one document. Errors are: text that is not JSON or not UTF-8, two
/// members of one name in an object, nesting beyond `kMaxDepth`, size beyond
/// `kMaxBytes`.
llvm::FailureOr<Value> parse(const SourceText &text, Diagnostics &diags);

} // namespace moec::json

#endif // MOEC_SUPPORT_JSON_H
