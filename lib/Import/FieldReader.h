//===- FieldReader.h - typed fields of a JSON object ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads fields of a JSON object by name and type. A getter reports an error
// about its field and then returns some legal value, so that one run shows all
// errors of a file. Callers compare error counts at the end.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FIELDREADER_H
#define MOEC_LIB_IMPORT_FIELDREADER_H

#include "moec/Import/LayerSpec.h"
#include "moec/Support/Json.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace moec {

/// Source of a field of the layer spec: its name for the user and its position,
/// which a command-line option does not have.
struct FieldOrigin {
  std::string shownName;
  std::optional<SourceRange> range;
};

/// State of an import: the text, the error sink, and the origins of spec fields
/// by their names in docs/use/layers.md ("top_k", "routing.num_groups").
struct ImportContext {
  const SourceText &text;
  Diagnostics &diags;
  llvm::StringMap<FieldOrigin> origins;

  /// The user's name for a field of the spec.
  std::string show(llvm::StringRef field) const;
  /// Reports an error about a field of the spec at its origin.
  void error(llvm::StringRef field, const llvm::Twine &message);
};

/// Whether f32 can represent a number: finite, and not rounded to 0.
bool isF32(double number);

class IgnoredFields;

class FieldReader {
public:
  /// Meaning of `null`, which models write for a feature they do not have.
  enum class Null { IsWrong, IsAbsent };

  /// `path` is the prefix of field names in messages ("routing."). A field
  /// that the user asked to ignore is absent, if `ignored` is given; messages
  /// about fields that may be absent offer that then.
  FieldReader(ImportContext &context, const json::Value &object,
              std::string path, Null null, IgnoredFields *ignored = nullptr)
      : context(context), object(object), path(std::move(path)), null(null),
        ignored(ignored) {}

  /// The value of a field, or null if absent.
  const json::Value *get(llvm::StringRef name);
  bool has(llvm::StringRef name) { return get(name) != nullptr; }

  /// An integer in `min .. max`. The field is required if there is no fallback.
  /// `field` is the resulting field of the spec, for later checks.
  int64_t getInteger(llvm::StringRef name, int64_t min, int64_t max,
                     std::optional<int64_t> fallback = std::nullopt,
                     llvm::StringRef field = "");
  bool getBoolean(llvm::StringRef name, bool fallback,
                  llvm::StringRef field = "");
  /// A number that f32 can represent.
  double getNumber(llvm::StringRef name, double fallback,
                   llvm::StringRef field = "");
  /// A required string; none if missing or of another type.
  std::optional<llvm::StringRef> getString(llvm::StringRef name);
  /// One of the strings `allowed`; the first one if absent.
  llvm::StringRef getOneOf(llvm::StringRef name,
                           llvm::ArrayRef<llvm::StringRef> allowed);
  /// An object; null if absent or of another type.
  const json::Value *getObject(llvm::StringRef name);
  /// A list; null if absent or of another type.
  const json::Value *getList(llvm::StringRef name);
  /// A list of strings; null if absent, and after an error.
  const json::Value *getStrings(llvm::StringRef name);

  /// Whether the field is there and is a string.
  bool isText(llvm::StringRef name) const {
    const json::Member *member = object.find(name);
    return member && member->value.kind == json::Value::Kind::String;
  }
  /// An enum value by its name in the spec.
  template <typename E>
  E getEnum(llvm::StringRef name, std::optional<E> fallback = std::nullopt) {
    llvm::SmallVector<llvm::StringRef> allowed;
    for (const EnumName<E> &entry : getEnumNames<E>())
      allowed.push_back(entry.name);
    std::optional<llvm::StringRef> found =
        getChoice(name, allowed, /*required=*/!fallback);
    return found ? *symbolize<E>(*found)
                 : fallback.value_or(getEnumNames<E>().front().value);
  }

  /// Refuses all fields that no getter has read.
  void refuseUnknown();

  /// Reports an error at the value of a field, or at the object if it is
  /// absent.
  void error(llvm::StringRef name, const llvm::Twine &message);
  /// The name of a field in messages.
  std::string show(llvm::StringRef name) const;
  /// The name of the object in messages.
  std::string getName() const;
  /// The name of a field including the enclosing objects.
  std::string getPath(llvm::StringRef name) const { return path + name.str(); }
  /// Whether a getter has read the field.
  bool isKnown(llvm::StringRef name) const;
  /// Marks a field as read.
  void markKnown(llvm::StringRef name);

  void reportMissing(llvm::StringRef name, const llvm::Twine &expected);
  void reportWrong(llvm::StringRef name, const json::Value &value,
                   const llvm::Twine &expected, bool isRequired = true);
  /// `words` and `--ignore-field=PATH`, as a shell takes it; empty if that is
  /// no way out.
  std::string offerIgnoring(
      llvm::StringRef name,
      llvm::StringRef words =
          "; if it says nothing of the experts, read past it with ") const;
  /// Records the origin of a field of the spec.
  void setOrigin(llvm::StringRef name, llvm::StringRef field,
                 const json::Value &value);

  ImportContext &getContext() { return context; }
  /// The reader of an object in this one; it ignores the same fields. Another
  /// value than an object is an error.
  FieldReader getInner(llvm::StringRef name, const json::Value &value) const;
  const json::Value &getObjectValue() const { return object; }

private:
  std::optional<llvm::StringRef>
  getChoice(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> allowed,
            bool required);

  ImportContext &context;
  const json::Value &object;
  std::string path;
  Null null;
  IgnoredFields *ignored;
  llvm::SmallVector<std::string> known;
};

/// A value in an error message: a scalar as written, else its kind.
std::string describeValue(const json::Value &value);

/// `"a", "b" or "c"`: the strings a field accepts.
std::string listChoices(llvm::ArrayRef<llvm::StringRef> choices);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FIELDREADER_H
