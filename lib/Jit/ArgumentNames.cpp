//===- ArgumentNames.cpp - options of commands as arguments of C ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArgumentNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace moec::capi;

namespace {

/// Form of an option's value in C.
enum class FieldValue {
  /// The field is named alone.
  None,
  Number,
  String,
  /// One string of an array.
  Strings,
  /// A field that is not 0 if the option is given.
  Flag,
};

struct OptionField {
  StringLiteral option, name;
  FieldValue value;
};

} // namespace

constexpr OptionField kFields[] = {
    {"--batch-invariant", "moejit_source.batch_invariant", FieldValue::Flag},
    {"--config", "moejit_options.configs", FieldValue::Strings},
    {"--device-part", "moejit_options.device_part", FieldValue::String},
    {"--entry", "moejit_source.entry", FieldValue::String},
    {"--explain=all", "MOEJIT_FULL_EXPLANATION", FieldValue::None},
    {"--ignore-field", "moejit_source.ignored_fields", FieldValue::Strings},
    {"--inputs", "moejit_layer_load_weights()", FieldValue::None},
    {"--layer", "moejit_source.layer", FieldValue::Number},
    {"--max-tokens", "moejit_source.max_tokens", FieldValue::Number},
    {"--num-experts", "moejit_source.num_experts", FieldValue::Number},
    {"--parallel", "moejit_source.parallel", FieldValue::None},
    {"--part", "moejit_source.part", FieldValue::String},
    {"--round-weights", "moejit_source.round_weights", FieldValue::Flag},
    {"--signature", "moert_layer_tensor()", FieldValue::None},
    {"--target", "moejit_options.target", FieldValue::String},
    {"--tokens", "tokens", FieldValue::Number},
    {"--valid-tokens", "moejit_source.num_valid_tokens", FieldValue::Flag},
};

/// Removes the value of an option, as a shell takes it, and returns it.
static std::string takeValue(StringRef &text) {
  std::string value;
  if (!text.consume_front("="))
    return value;
  if (text.consume_front("'")) {
    do {
      auto [part, rest] = text.split('\'');
      value += (value.empty() ? "" : "'") + part.str();
      text = rest;
      // A quote inside of quotes.
    } while (text.consume_front("\\''"));
    return value;
  }
  value = text.take_while([](char c) {
                return isAlnum(c) || StringRef("_.:@/-").contains(c);
              })
              .str();
  // A full stop or a colon behind the option is part of the sentence.
  while (!value.empty() && StringRef(".:").contains(value.back()))
    value.pop_back();
  text = text.drop_front(value.size());
  return value;
}

static std::string write(const OptionField &field, StringRef name,
                         StringRef value) {
  std::string result = name.str();
  if (field.value == FieldValue::Flag)
    return result + " = 1";
  if (value.empty())
    return result;
  switch (field.value) {
  case FieldValue::None:
  case FieldValue::Flag:
    break;
  case FieldValue::Number:
    result += (" = " + value).str();
    break;
  case FieldValue::String:
    result += (" = \"" + value + "\"").str();
    break;
  case FieldValue::Strings:
    result += (" = {\"" + value + "\"}").str();
    break;
  }
  return result;
}

std::string moec::capi::nameForC(StringRef message, LayerArgument layer) {
  std::string result;
  bool isWord = false;
  while (!message.empty()) {
    const OptionField *found = nullptr;
    if (!isWord)
      for (const OptionField &field : kFields) {
        StringRef rest = message;
        if (rest.consume_front(field.option) &&
            (rest.empty() || !(isAlnum(rest[0]) || rest[0] == '-')))
          found = &field;
      }
    if (!found) {
      isWord = isAlnum(message[0]) || StringRef("_-'\"").contains(message[0]);
      result += message[0];
      message = message.drop_front();
      continue;
    }
    message = message.drop_front(found->option.size());
    StringRef name = found->name;
    if (layer == LayerArgument::DecoderLayer && found->option == "--layer")
      name = "decoder_layer";
    result += write(*found, name, takeValue(message));
    isWord = false;
  }
  return result;
}
