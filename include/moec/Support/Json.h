//===- Json.h - a JSON document with source ranges --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Strict JSON (RFC 8259, UTF-8) as a tree. Each value and each member name
// keeps its source range, so that later errors can point to it. The parser does
// not recurse.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_JSON_H
#define MOEC_SUPPORT_JSON_H

#include "moec/Support/Diagnostics.h"

#include <vector>

namespace moec::json {

/// Largest nesting of brackets. Layer descriptions need four levels; the limit
/// bounds the recursion of every walk over a document, including its
/// destruction.
constexpr unsigned kMaxDepth = 64;

/// Largest text that is read. Real configurations have a few kilobytes.
constexpr uint64_t kMaxBytes = uint64_t(4) << 20;

struct Member;

/// One JSON value. `kind` says which fields are valid.
struct Value {
  enum class Kind { Null, Boolean, Number, String, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  /// Range of the value, including its quotes or brackets.
  SourceRange range;
  /// The decoded characters of a string, or the literal text of a number: its
  /// digits are converted only when a type is requested.
  std::string text;
  std::vector<Value> elements;
  std::vector<Member> members;

  bool isNull() const { return kind == Kind::Null; }
  bool isObject() const { return kind == Kind::Object; }

  /// The member called `name`, or null.
  const Member *find(llvm::StringRef name) const;

  /// The value of an integer literal that fits in 64 bits.
  std::optional<int64_t> getInteger() const;
  /// True for a number without fraction and exponent, of any size.
  bool isIntegerLiteral() const;
  /// The double nearest to a number; none if it is not finite.
  std::optional<double> getDouble() const;
};

/// A member of an object; members are kept in file order.
struct Member {
  std::string name;
  SourceRange nameRange;
  Value value;
};

/// The name of a kind in error messages: "an object", "a string", ...
llvm::StringRef describe(Value::Kind kind);

/// Parses one document. Errors: text that is not JSON or not UTF-8, duplicate
/// member names in an object, nesting deeper than `kMaxDepth`, size above
/// `kMaxBytes`.
llvm::FailureOr<Value> parse(const SourceText &text, Diagnostics &diags);

} // namespace moec::json

#endif // MOEC_SUPPORT_JSON_H
