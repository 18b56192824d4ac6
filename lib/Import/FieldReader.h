//===- FieldReader.h - typed fields of a JSON object ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads fields of one JSON object by name and type. Every getter reports what
// is wrong with its field and then returns some legal value, so that one run
// shows all errors of a file; who reads compares error counts at the end.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FIELDREADER_H
#define MOEC_LIB_IMPORT_FIELDREADER_H

#include "moec/Import/LayerSpec.h"
#include "moec/Support/Json.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace moec {

/// Where a field of the layer spec got its value: the name by which the user
/// knows it, and the place, which an option of the command line has not.
struct FieldOrigin {
  std::string shownName;
  std::optional<SourceRange> range;
};

/// One import: the text, the sink of errors, and the origin of the fields of
/// the spec by their names in docs/layers.md ("top_k", "routing.num_groups").
struct ImportContext {
  const SourceText &text;
  Diagnostics &diags;
  llvm::StringMap<FieldOrigin> origins;

  /// The name by which the user knows a field of the spec.
  std::string show(llvm::StringRef field) const;
  /// Reports an error about a field of the spec, where the user wrote it.
  void error(llvm::StringRef field, const llvm::Twine &message);
};

/// Whether f32 can hold a number: finite, and 0 only if it is 0.
bool isF32(double number);

class FieldReader {
public:
  /// What `null` means: models write it for a feature they do not have.
  enum class Null { IsWrong, IsAbsent };

  /// `path` precedes the names of fields in messages ("routing.").
  FieldReader(ImportContext &context, const json::Value &object,
              std::string path, Null null)
      : context(context), object(object), path(std::move(path)), null(null) {}

  /// The value of a field, or null when it is absent.
  const json::Value *get(llvm::StringRef name);
  bool has(llvm::StringRef name) { return get(name) != nullptr; }

  /// An integer in `min .. max`. Without a fallback the field is required.
  /// `field` is the field of the spec that it becomes, when checks speak of it.
  int64_t getInteger(llvm::StringRef name, int64_t min, int64_t max,
                     std::optional<int64_t> fallback = std::nullopt,
                     llvm::StringRef field = "");
  bool getBoolean(llvm::StringRef name, bool fallback,
                  llvm::StringRef field = "");
  /// A number that f32 can hold.
  double getNumber(llvm::StringRef name, double fallback,
                   llvm::StringRef field = "");
  /// A required string; none when it is missing or something else.
  std::optional<llvm::StringRef> getString(llvm::StringRef name);
  /// A string out of `allowed`; the first one when the field is absent.
  llvm::StringRef getOneOf(llvm::StringRef name,
                           llvm::ArrayRef<llvm::StringRef> allowed);
  /// An object; null when absent or wrong.
  const json::Value *getObject(llvm::StringRef name);
  /// A list; null when absent or wrong.
  const json::Value *getList(llvm::StringRef name);

  /// A value of an enum by its name in the spec.
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

  /// Refuses every field that no getter has asked for.
  void refuseUnknown();

  /// Reports an error at the value of a field, or at the object without it.
  void error(llvm::StringRef name, const llvm::Twine &message);
  /// The name of a field as messages show it.
  std::string show(llvm::StringRef name) const;
  /// The name of a field with the objects that it stands in.
  std::string getPath(llvm::StringRef name) const { return path + name.str(); }
  /// Whether a getter has asked for the field.
  bool isKnown(llvm::StringRef name) const;
  /// Counts a field as asked for.
  void markKnown(llvm::StringRef name);

  void reportMissing(llvm::StringRef name, const llvm::Twine &expected);
  void reportWrong(llvm::StringRef name, const json::Value &value,
                   const llvm::Twine &expected);
  /// Remembers where a field of the spec came from.
  void setOrigin(llvm::StringRef name, llvm::StringRef field,
                 const json::Value &value);

  ImportContext &getContext() { return context; }
  const json::Value &getObjectValue() const { return object; }

private:
  std::optional<llvm::StringRef>
  getChoice(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> allowed,
            bool required);

  ImportContext &context;
  const json::Value &object;
  std::string path;
  Null null;
  llvm::SmallVector<std::string> known;
};

/// A value as an error message shows it: a scalar literally, else its kind.
std::string describeValue(const json::Value &value);

/// `"a", "b" or "c"`: the strings a field accepts.
std::string listChoices(llvm::ArrayRef<llvm::StringRef> choices);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FIELDREADER_H
