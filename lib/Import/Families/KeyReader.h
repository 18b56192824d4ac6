//===- KeyReader.h - values of a family's keys ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the value of a key in a config.json: under any of its names, in a list
// with an element for each decoder layer, or as what the model's code assumes.
// Like FieldReader, which it reports through, it returns some legal value after
// an error.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H
#define MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H

#include "../FieldReader.h"
#include "Family.h"

namespace moec {

class KeyReader {
public:
  /// `outer` is the object around `config`, if there is one; `layer` is the
  /// decoder layer, of which lists are asked.
  KeyReader(FieldReader &config, FieldReader *outer,
            std::optional<int64_t> layer)
      : config(config), outer(outer), layer(layer) {}

  /// What the file says of a key.
  struct Found {
    /// The name that the file uses, or the first one, and its object.
    llvm::StringRef name;
    FieldReader *reader = nullptr;
    /// Null when the file is silent, and for an allowed null.
    const json::Value *value = nullptr;
    /// The file has the key: with null, where that is allowed.
    bool isPresent = false;
  };
  Found find(const Key &key);

  /// Whether the file has the key, with another value than null.
  bool has(const Key &key) { return key && find(key).value; }

  /// None for an allowed null, and where the fallback is null.
  std::optional<int64_t> getInteger(const Key &key, int64_t min, int64_t max,
                                    llvm::StringRef field = "");
  std::optional<double> getNumber(const Key &key, llvm::StringRef field = "");
  bool getBoolean(const Key &key, llvm::StringRef field = "");
  /// None for null; otherwise one of the words, or the first one of them.
  std::optional<llvm::StringRef> getWord(const Key &key,
                                         llvm::ArrayRef<llvm::StringRef> words);

  /// Reports an error about a key where the file says it.
  void error(const Key &key, const llvm::Twine &message);
  /// The key as messages show it.
  std::string show(const Key &key);

private:
  const json::Member *findMember(llvm::StringRef name, Found &found);
  /// Reports a key without value and without fallback, or with a null that
  /// means something else than silence.
  void complain(const Key &key, const Found &found,
                const llvm::Twine &expected);

  FieldReader &config;
  FieldReader *outer;
  std::optional<int64_t> layer;
};

/// A scalar of JSON that an entry of the table holds.
bool isSameScalar(const json::Value &value, llvm::StringRef text);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_KEYREADER_H
