//===- KeyReader.h - values of a family's keys ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Looks up the value of a key in a config.json: under any of its names, in a
// list with an element per decoder layer or an object of this layer, or as the
// default of the model's code. Errors go through FieldReader. Like FieldReader
// it returns some legal value after an error.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H
#define MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H

#include "../FieldReader.h"
#include "Family.h"

namespace moec {

class KeyReader {
public:
  /// `outer` is the object around `config`, or null. `layer` selects elements
  /// of per-layer lists. `own` is an object of this layer, whose keys replace
  /// those of `config`, or null.
  KeyReader(FieldReader &config, FieldReader *outer,
            std::optional<int64_t> layer, FieldReader *own = nullptr)
      : config(config), outer(outer), own(own), layer(layer) {}

  /// Result of the lookup of a key.
  struct Found {
    /// The name that the file uses, or the first one, and its object.
    llvm::StringRef name;
    FieldReader *reader = nullptr;
    /// Null if the file lacks the key, and for an allowed null.
    const json::Value *value = nullptr;
    /// The file has the key, possibly with an allowed null.
    bool isPresent = false;
  };
  Found find(const Key &key);

  /// Whether the file has the key with a value other than null.
  bool has(const Key &key) { return key && find(key).value; }
  /// Whether the file has the key with another value than null and false.
  bool isSet(const Key &key);
  /// Whether the key's value is the string `word`.
  bool isWord(const Key &key, llvm::StringRef word);

  /// None for an allowed null, and if the fallback is null.
  std::optional<int64_t> getInteger(const Key &key, int64_t min, int64_t max,
                                    llvm::StringRef field = "");
  std::optional<double> getNumber(const Key &key, llvm::StringRef field = "");
  bool getBoolean(const Key &key, llvm::StringRef field = "");
  /// None for null; otherwise one of the words, after an error the first.
  std::optional<llvm::StringRef> getWord(const Key &key,
                                         llvm::ArrayRef<llvm::StringRef> words);

  /// Reports an error at the key's position in the file.
  void error(const Key &key, const llvm::Twine &message);
  /// The key's name in messages.
  std::string show(const Key &key);

private:
  const json::Member *findMember(llvm::StringRef name, Found &found);
  /// Reports a required key that is missing, or a null that is not allowed.
  void complain(const Key &key, const Found &found,
                const llvm::Twine &expected);

  FieldReader &config;
  FieldReader *outer;
  FieldReader *own;
  std::optional<int64_t> layer;
};

/// Compares a JSON scalar with one from the table.
bool isSameScalar(const json::Value &value, llvm::StringRef text);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H
