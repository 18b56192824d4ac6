//===- KeyReader.cpp - values of a family's keys ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeyReader.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

using Kind = json::Value::Kind;

bool isSameScalar(const json::Value &value, StringRef text) {
  switch (value.kind) {
  case Kind::Null:
    return text == "null";
  case Kind::Boolean:
    return text == (value.boolean ? "true" : "false");
  case Kind::Number: {
    double number = 0;
    return !text.getAsDouble(number) && value.getDouble() == number;
  }
  case Kind::String:
    return text.size() >= 2 && text.front() == '"' &&
           text.drop_front().drop_back() == value.text;
  case Kind::Array:
    return text == "[]" && value.elements.empty();
  case Kind::Object:
    return false;
  }
  llvm_unreachable("every kind is listed");
}

static bool isSameValue(const json::Value &a, const json::Value &b) {
  if (a.kind != b.kind)
    return false;
  if (a.kind == Kind::Number)
    return a.getDouble() == b.getDouble();
  return a.boolean == b.boolean && a.text == b.text && a.members.empty() &&
         b.members.empty() && llvm::equal(a.elements, b.elements, isSameValue);
}

const json::Member *KeyReader::findMember(StringRef name, Found &found) {
  found.reader = &config;
  if (name.consume_front("^") && outer)
    found.reader = outer;
  auto [first, rest] = name.split('.');
  found.name = first;
  found.reader->markKnown(first);
  if (own && found.reader == &config && own->has(first)) {
    found.reader = own;
    own->markKnown(first);
  }
  const json::Member *member = found.reader->getObjectValue().find(first);
  if (!rest.empty() && member && member->value.isObject())
    return member->value.find(rest);
  return member;
}

KeyReader::Found KeyReader::find(const Key &key) {
  Found found;
  const json::Member *first = nullptr;
  for (StringRef name : key.names) {
    Found next;
    const json::Member *member = findMember(name, next);
    if (!found.reader)
      found = next;
    if (!member)
      continue;
    if (first) {
      if (!isSameValue(first->value, member->value))
        next.reader->error(next.name,
                           next.reader->show(next.name) + " and " +
                               found.reader->show(found.name) +
                               " are names of one value and differ; keep one "
                               "of them");
      continue;
    }
    first = member;
    found = {next.name, next.reader, &member->value, true};
  }
  if (found.value && found.value->kind == Kind::Array &&
      (key.perLayer || key.element)) {
    const json::Value *list = found.value;
    size_t index = key.element ? *key.element : size_t(layer.value_or(0));
    found.value = nullptr;
    if (index < list->elements.size())
      found.value = &list->elements[index];
    else
      found.reader->error(found.name, found.reader->show(found.name) + " has " +
                                          Twine(list->elements.size()) +
                                          " values, none for number " +
                                          Twine(index) + ", counted from 0");
  }
  if (found.value && found.value->isNull())
    found.value = nullptr;
  return found;
}

void KeyReader::error(const Key &key, const Twine &message) {
  Found found = find(key);
  found.reader->error(found.name, message);
}

std::string KeyReader::show(const Key &key) {
  Found found = find(key);
  return found.reader->show(found.name);
}

void KeyReader::complain(const Key &key, const Found &found,
                         const Twine &expected) {
  FieldReader &reader = *found.reader;
  if (!found.isPresent) {
    std::string others;
    for (StringRef name : ArrayRef(key.names).drop_front())
      others += " (or " + quote(name) + ")";
    return reader.error(found.name, reader.show(found.name) + others +
                                        " is missing; it must be " + expected);
  }
  // A list without an element for the layer is already reported.
  if (!reader.getObjectValue().find(found.name)->value.isNull())
    return;
  std::string remedy;
  if (key.fallback)
    remedy = "; leave it out for " + key.fallback->str();
  reader.error(found.name, reader.show(found.name) + " must be " + expected +
                               ", not null" + remedy);
}

bool KeyReader::isSet(const Key &key) {
  const json::Value *value = key ? find(key).value : nullptr;
  return value && !value->isNull() &&
         (value->kind != json::Value::Kind::Boolean || value->boolean);
}

bool KeyReader::isWord(const Key &key, StringRef word) {
  const json::Value *value = key ? find(key).value : nullptr;
  return value && value->kind == json::Value::Kind::String &&
         value->text == word;
}

std::optional<int64_t> KeyReader::getInteger(const Key &key, int64_t min,
                                             int64_t max, StringRef field) {
  Found found = find(key);
  std::string expected =
      ("an integer from " + Twine(min) + " to " + Twine(max)).str();
  if (!found.value) {
    if (found.isPresent && key.takesNull)
      return std::nullopt;
    if (found.isPresent || !key.fallback) {
      complain(key, found, expected);
      return min;
    }
    int64_t fallback = 0;
    if (*key.fallback == "null" || key.fallback->getAsInteger(10, fallback))
      return std::nullopt;
    return fallback;
  }
  found.reader->setOrigin(found.name, field, *found.value);
  std::optional<int64_t> result = found.value->getInteger();
  if (result && *result >= min && *result <= max)
    return result;
  found.reader->reportWrong(found.name, *found.value, expected);
  return min;
}

std::optional<double> KeyReader::getNumber(const Key &key, StringRef field) {
  Found found = find(key);
  constexpr StringLiteral expected = "a number that f32 can hold";
  if (!found.value) {
    if (found.isPresent && key.takesNull)
      return std::nullopt;
    if (found.isPresent || !key.fallback) {
      complain(key, found, expected);
      return 1.0;
    }
    double fallback = 0;
    if (*key.fallback == "null" || key.fallback->getAsDouble(fallback))
      return std::nullopt;
    return fallback;
  }
  found.reader->setOrigin(found.name, field, *found.value);
  std::optional<double> result = found.value->getDouble();
  if (result && isF32(*result))
    return result;
  found.reader->reportWrong(found.name, *found.value, expected);
  return 1.0;
}

bool KeyReader::getBoolean(const Key &key, StringRef field) {
  Found found = find(key);
  if (!found.value) {
    if (found.isPresent && key.takesNull)
      return false;
    if (found.isPresent || !key.fallback)
      complain(key, found, "true or false");
    return key.fallback && *key.fallback == "true";
  }
  found.reader->setOrigin(found.name, field, *found.value);
  if (found.value->kind == Kind::Boolean)
    return found.value->boolean;
  found.reader->reportWrong(found.name, *found.value, "true or false");
  return false;
}

/// The words of a boolean.
constexpr StringLiteral kTrue = "true", kFalse = "false";

std::optional<StringRef> KeyReader::getWord(const Key &key,
                                            ArrayRef<StringRef> words) {
  Found found = find(key);
  if (!found.value) {
    if (found.isPresent && key.takesNull)
      return std::nullopt;
    if (found.isPresent || !key.fallback) {
      complain(key, found, listChoices(words));
      return words.front();
    }
    if (*key.fallback == "null")
      return std::nullopt;
    return key.fallback->trim('"');
  }
  found.reader->setOrigin(found.name, "", *found.value);
  std::optional<StringRef> text;
  if (found.value->kind == Kind::String)
    text = found.value->text;
  else if (found.value->kind == Kind::Boolean)
    text = found.value->boolean ? kTrue : kFalse;
  if (const auto *word = llvm::find(words, text.value_or(""));
      text && word != words.end())
    return *word;
  found.reader->reportWrong(found.name, *found.value, listChoices(words));
  return words.front();
}

} // namespace moec
