//===- ListModels.cpp - the table of families as JSON -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/Import.h"

#include "Families/Family.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace llvm;

namespace moec {

namespace {

class Printer {
public:
  explicit Printer(llvm::json::OStream &json) : json(json) {}

  void print(StringRef modelType, const Family &family) {
    json.attributeObject(modelType, [&] {
      if (!family.refusal.empty()) {
        json.attribute("refused", family.refusal);
        return;
      }
      if (!family.within.empty())
        json.attribute("within", family.within);
      json.attributeArray("reads", [&] {
        for (const Key *key : getDistinctKeys(family))
          printKey(*key);
      });
      json.attributeObject("expects", [&] {
        for (const Expectation &expectation : family.expected)
          json.attributeArray(expectation.key.names.front(), [&] {
            for (StringRef value : expectation.values)
              json.value(value);
          });
      });
      json.attributeArray("irrelevant", [&] {
        SmallVector<StringRef> names;
        family.irrelevant.split(names, ' ', -1, /*KeepEmpty=*/false);
        for (StringRef name : names)
          json.value(name);
      });
      if (!family.note.empty())
        json.attribute("note", family.note);
    });
  }

private:
  /// A key may set several fields.
  static SmallVector<const Key *> getDistinctKeys(const Family &family) {
    SmallVector<const Key *> keys;
    for (const Key *key : family.getKeys())
      if (llvm::none_of(keys, [&](const Key *other) {
            return other->names.front() == key->names.front();
          }))
        keys.push_back(key);
    return keys;
  }

  void printKey(const Key &key) {
    json.object([&] {
      json.attributeArray("names", [&] {
        for (StringRef name : key.names)
          json.value(name);
      });
      if (key.fallback)
        json.attribute("default", *key.fallback);
      if (key.takesNull)
        json.attribute("null", true);
    });
  }

  llvm::json::OStream &json;
};

} // namespace

void printModels(raw_ostream &os) {
  llvm::json::OStream json(os, /*IndentSize=*/1);
  std::vector<std::pair<StringRef, const Family *>> entries;
  for (const Family &family : getFamilies())
    for (StringRef type : family.getModelTypes())
      entries.push_back({type, &family});
  llvm::sort(entries, llvm::less_first());
  json.object([&] {
    for (auto [type, family] : entries)
      Printer(json).print(type, *family);
  });
  os << "\n";
}

} // namespace moec
