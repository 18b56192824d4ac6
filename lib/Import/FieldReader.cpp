//===- FieldReader.cpp - typed fields of a JSON object ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FieldReader.h"

#include "AllowList.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <limits>

using namespace llvm;

namespace moec {

std::string ImportContext::show(StringRef field) const {
  auto it = origins.find(field);
  return it == origins.end() ? quote(field) : it->second.shownName;
}

void ImportContext::error(StringRef field, const Twine &message) {
  auto it = origins.find(field);
  if (it != origins.end() && it->second.range)
    diags.error(text, *it->second.range, message);
  else
    diags.error(text.getName(), message);
}

std::string describeValue(const json::Value &value) {
  using Kind = json::Value::Kind;
  switch (value.kind) {
  case Kind::Boolean:
    return value.boolean ? "true" : "false";
  case Kind::Number: {
    constexpr size_t maxDigits = 24;
    return value.text.size() <= maxDigits
               ? value.text
               : value.text.substr(0, maxDigits) + "...";
  }
  case Kind::String: {
    std::string text = quote(value.text);
    text.front() = text.back() = '"';
    return text;
  }
  default:
    return json::describe(value.kind).str();
  }
}

std::string listChoices(ArrayRef<StringRef> choices) {
  std::string result;
  for (auto [i, choice] : llvm::enumerate(choices)) {
    if (i > 0)
      result += i + 1 == choices.size() ? " or " : ", ";
    result += "\"" + choice.str() + "\"";
  }
  return result;
}

std::string FieldReader::show(StringRef name) const {
  constexpr size_t most = 60, leastOfPath = 20;
  if (path.size() + name.size() <= most || name.size() > most - leastOfPath)
    return quote(path + name.str());
  // Names of modules may be long; the field itself must stay readable.
  return quote(
      (StringRef(path).take_front(most - 4 - name.size()) + "....").str() +
      name.str());
}

std::string FieldReader::getName() const {
  return quote(StringRef(path).rtrim('.'));
}

bool FieldReader::isKnown(StringRef name) const {
  return llvm::is_contained(known, name);
}

void FieldReader::markKnown(StringRef name) {
  if (!isKnown(name))
    known.push_back(name.str());
}

const json::Value *FieldReader::get(StringRef name) {
  markKnown(name);
  const json::Member *member = object.find(name);
  if (!member || (member->value.isNull() && null == Null::IsAbsent) ||
      (ignored && ignored->take(getPath(name))))
    return nullptr;
  return &member->value;
}

void FieldReader::error(StringRef name, const Twine &message) {
  const json::Member *member = object.find(name);
  // For a missing field, the opening bracket of the object.
  SourceRange range =
      member ? member->value.range
             : SourceRange{object.range.begin, object.range.begin + 1};
  context.diags.error(context.text, range, message);
}

void FieldReader::reportMissing(StringRef name, const Twine &expected) {
  error(name, show(name) + " is missing; it must be " + expected);
}

void FieldReader::reportWrong(StringRef name, const json::Value &value,
                              const Twine &expected, bool isRequired) {
  error(name, show(name) + " must be " + expected + ", not " +
                  describeValue(value) +
                  (isRequired ? std::string() : offerIgnoring(name)));
}

/// The word as a shell needs it: names of modules may be expressions.
static std::string quoteForShell(StringRef word) {
  if (llvm::all_of(word, [](char c) {
        return llvm::isAlnum(c) || StringRef("_.:/-").contains(c);
      }))
    return word.str();
  std::string quoted = "'";
  for (char c : word)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string FieldReader::offerIgnoring(StringRef name, StringRef words) const {
  if (!ignored || !object.find(name) || !ignored->offer(getPath(name)))
    return {};
  return (words + "--ignore-field=" + quoteForShell(getPath(name))).str();
}

void FieldReader::setOrigin(StringRef name, StringRef field,
                            const json::Value &value) {
  std::string key = field.empty() ? path + name.str() : field.str();
  context.origins[key] = {show(name), value.range};
}

int64_t FieldReader::getInteger(StringRef name, int64_t min, int64_t max,
                                std::optional<int64_t> fallback,
                                StringRef field) {
  std::string expected =
      ("an integer from " + Twine(min) + " to " + Twine(max)).str();
  const json::Value *value = get(name);
  if (!value) {
    if (!fallback)
      reportMissing(name, expected);
    return fallback.value_or(min);
  }
  setOrigin(name, field, *value);
  std::optional<int64_t> result = value->getInteger();
  if (!result || *result < min || *result > max) {
    reportWrong(name, *value, expected, /*isRequired=*/!fallback);
    return fallback.value_or(min);
  }
  return *result;
}

bool FieldReader::getBoolean(StringRef name, bool fallback, StringRef field) {
  const json::Value *value = get(name);
  if (!value)
    return fallback;
  setOrigin(name, field, *value);
  if (value->kind != json::Value::Kind::Boolean) {
    reportWrong(name, *value, "true or false", /*isRequired=*/false);
    return fallback;
  }
  return value->boolean;
}

// A nonzero number that becomes 0 in f32 could cause a division by 0.
bool isF32(double number) {
  return std::abs(number) <= std::numeric_limits<float>::max() &&
         (number == 0.0 || static_cast<float>(number) != 0.0f);
}

double FieldReader::getNumber(StringRef name, double fallback,
                              StringRef field) {
  const json::Value *value = get(name);
  if (!value)
    return fallback;
  setOrigin(name, field, *value);
  std::optional<double> result = value->getDouble();
  if (!result || !isF32(*result)) {
    reportWrong(name, *value, "a number that f32 can hold");
    return fallback;
  }
  return *result;
}

std::optional<StringRef> FieldReader::getString(StringRef name) {
  const json::Value *value = get(name);
  if (!value) {
    reportMissing(name, "a string");
    return std::nullopt;
  }
  setOrigin(name, "", *value);
  if (value->kind != json::Value::Kind::String) {
    reportWrong(name, *value, "a string");
    return std::nullopt;
  }
  return StringRef(value->text);
}

std::optional<StringRef> FieldReader::getChoice(StringRef name,
                                                ArrayRef<StringRef> allowed,
                                                bool required) {
  const json::Value *value = get(name);
  if (!value) {
    if (required)
      reportMissing(name, listChoices(allowed));
    return std::nullopt;
  }
  setOrigin(name, "", *value);
  if (value->kind == json::Value::Kind::String)
    if (const auto *found = llvm::find(allowed, StringRef(value->text));
        found != allowed.end())
      return *found;
  reportWrong(name, *value, listChoices(allowed), required);
  return std::nullopt;
}

StringRef FieldReader::getOneOf(StringRef name, ArrayRef<StringRef> allowed) {
  return getChoice(name, allowed, /*required=*/false).value_or(allowed.front());
}

const json::Value *FieldReader::getObject(StringRef name) {
  const json::Value *value = get(name);
  if (value && !value->isObject()) {
    reportWrong(name, *value, "an object", /*isRequired=*/false);
    return nullptr;
  }
  return value;
}

const json::Value *FieldReader::getList(StringRef name) {
  const json::Value *value = get(name);
  if (value && value->kind != json::Value::Kind::Array) {
    reportWrong(name, *value, "a list", /*isRequired=*/false);
    return nullptr;
  }
  return value;
}

const json::Value *FieldReader::getStrings(StringRef name) {
  const json::Value *list = getList(name);
  if (!list)
    return nullptr;
  for (const json::Value &element : list->elements)
    if (element.kind != json::Value::Kind::String) {
      context.diags.error(context.text, element.range,
                          show(name) + " must be a list of strings, but has " +
                              describeValue(element));
      return nullptr;
    }
  return list;
}

FieldReader FieldReader::getInner(StringRef name,
                                  const json::Value &value) const {
  if (!value.isObject())
    context.diags.error(context.text, value.range,
                        show(name) + " must be an object, not " +
                            describeValue(value));
  return {context, value, getPath(name) + ".", null, ignored};
}

void FieldReader::refuseUnknown() {
  for (const json::Member &member : object.members) {
    if (isKnown(member.name))
      continue;
    // The closest known name, if it is close enough for a typo.
    StringRef closest;
    unsigned distance = 3;
    for (const std::string &name : known) {
      unsigned d = StringRef(member.name)
                       .edit_distance(name, /*AllowReplacements=*/true,
                                      /*MaxEditDistance=*/distance);
      if (d < distance && d < name.size()) {
        distance = d;
        closest = name;
      }
    }
    std::string message = "unknown field " + show(member.name);
    if (!closest.empty())
      message += "; did you mean " + quote(closest) + "?";
    else
      message += "; the fields here are " + llvm::join(known, ", ");
    context.diags.error(context.text, member.nameRange, message);
  }
}

} // namespace moec
