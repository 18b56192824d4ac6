//===- DecoderLayers.cpp - decoder layers with experts --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DecoderLayers.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

namespace {

using Kind = json::Value::Kind;

/// More layers than any model has; bounds loops over layers.
constexpr int64_t kMaxLayers = 4096;

/// Parses a list of numbers, or a string of numbers separated by commas.
std::optional<std::vector<int64_t>> getNumbers(const json::Value &value) {
  std::vector<int64_t> numbers;
  if (value.kind == Kind::String) {
    SmallVector<StringRef> parts;
    StringRef(value.text).split(parts, ',', -1, /*KeepEmpty=*/false);
    for (StringRef part : parts) {
      int64_t number = 0;
      if (part.trim().getAsInteger(10, number))
        return std::nullopt;
      numbers.push_back(number);
    }
    return numbers;
  }
  if (value.kind != Kind::Array)
    return std::nullopt;
  for (const json::Value &element : value.elements) {
    std::optional<int64_t> number = element.getInteger();
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

/// Parses a list of booleans or of 0 and 1.
std::optional<std::vector<bool>> getFlags(const json::Value &value) {
  if (value.kind != Kind::Array)
    return std::nullopt;
  std::vector<bool> flags;
  for (const json::Value &element : value.elements) {
    std::optional<int64_t> number = element.getInteger();
    if (element.kind != Kind::Boolean && number != 0 && number != 1)
      return std::nullopt;
    flags.push_back(element.boolean || number == 1);
  }
  return flags;
}

/// Parses a list of strings, or of objects with a string under `field`.
std::optional<std::vector<std::string>> getWords(const json::Value &value,
                                                 StringRef field) {
  if (value.kind != Kind::Array)
    return std::nullopt;
  std::vector<std::string> words;
  for (const json::Value &element : value.elements) {
    const json::Member *member =
        element.isObject() ? element.find(field) : nullptr;
    const json::Value &word = member ? member->value : element;
    if (word.kind != Kind::String)
      return std::nullopt;
    words.push_back(word.text);
  }
  return words;
}

} // namespace

DecoderLayers::DecoderLayers(const Family &family, KeyReader &reader) {
  if (family.numLayers)
    count = reader.getInteger(family.numLayers, 1, kMaxLayers);
  for (const LayerRule &rule : family.layers)
    addRule(rule, reader);
  numMtp = reader
               .getInteger("num_nextn_predict_layers|num_mtp_layers|"
                           "mtp_num_hidden_layers?=0",
                           0, kMaxLayers)
               .value_or(0);
}

void DecoderLayers::decide(std::vector<bool> flags,
                           const KeyReader::Found &found) {
  if (decisive)
    return;
  auto size = int64_t(flags.size());
  if (count && *count > size)
    found.reader->error(found.name, found.reader->show(found.name) + " has " +
                                        Twine(size) + " elements for " +
                                        Twine(*count) +
                                        " decoder layers; give one for each");
  count = count.value_or(size);
  decisive = [flags = std::move(flags)](int64_t index) {
    return index < int64_t(flags.size()) && flags[index];
  };
}

void DecoderLayers::replace(std::vector<int64_t> layersWithExperts) {
  decisive = [list = std::move(layersWithExperts)](int64_t index) {
    return is_contained(list, index);
  };
}

bool DecoderLayers::addNames(const LayerRule &rule, KeyReader &reader) {
  KeyReader::Found found = reader.find(rule.key);
  if (!found.value)
    return false;
  FieldReader &config = *found.reader;
  const json::Value &value = *found.value;
  SmallVector<StringRef> accepted;
  rule.words.split(accepted, ' ', -1, /*KeepEmpty=*/false);
  switch (rule.kind) {
  case LayerRule::Except:
    if (auto numbers = getNumbers(value)) {
      rules.push_back([list = *numbers](int64_t index) {
        return !is_contained(list, index);
      });
      return true;
    }
    config.reportWrong(found.name, value, "a list of decoder layers");
    return true;
  case LayerRule::Listed:
    if (auto numbers = getNumbers(value)) {
      if (!decisive)
        decisive = [list = *numbers](int64_t index) {
          return is_contained(list, index);
        };
      return true;
    }
    config.reportWrong(found.name, value, "a list of decoder layers");
    return true;
  case LayerRule::Types:
    if (auto names =
            getWords(value, rule.key.names.front().split('.').second)) {
      std::vector<bool> flags;
      for (const std::string &name : *names)
        flags.push_back(is_contained(accepted, name));
      if (!decisive)
        words = *names;
      decide(std::move(flags), found);
      return true;
    }
    config.reportWrong(found.name, value, "a list with a word for each layer");
    return true;
  case LayerRule::Pattern:
    if (value.kind == Kind::String) {
      std::vector<bool> flags;
      for (char letter : value.text)
        flags.push_back(is_contained(accepted, StringRef(&letter, 1)));
      decide(std::move(flags), found);
      return true;
    }
    config.reportWrong(found.name, value, "a string with a letter per layer");
    return true;
  case LayerRule::Flags:
  case LayerRule::Frequency:
    if (rule.kind == LayerRule::Frequency && value.kind != Kind::Array)
      return false;
    if (auto flags = getFlags(value)) {
      decide(std::move(*flags), found);
      return true;
    }
    config.reportWrong(found.name, value, "a list with 0 or 1 for each layer");
    return true;
  default:
    return false;
  }
}

void DecoderLayers::addNumber(const LayerRule &rule, KeyReader &reader) {
  constexpr int64_t max = kMaxLayers;
  switch (rule.kind) {
  case LayerRule::From: {
    int64_t first = reader.getInteger(rule.key, 0, max).value_or(0);
    rules.push_back([first](int64_t index) { return index >= first; });
    return;
  }
  case LayerRule::Step: {
    int64_t step = reader.getInteger(rule.key, 0, max).value_or(1);
    rules.push_back(
        [step](int64_t index) { return step > 0 && (index + 1) % step == 0; });
    return;
  }
  case LayerRule::Frequency: {
    int64_t step = reader.getInteger(rule.key, 1, max).value_or(1);
    rules.push_back([step](int64_t index) { return index % step == 0; });
    return;
  }
  case LayerRule::Period: {
    int64_t period = reader.getInteger(rule.key, 1, max).value_or(1);
    int64_t offset = 1;
    // The models' code refuses an offset that no layer of a period has.
    if (rule.second)
      offset = reader.getInteger(rule.second, 0, period - 1).value_or(0);
    rules.push_back([period, offset](int64_t index) {
      return index % period == offset % period;
    });
    return;
  }
  case LayerRule::Range: {
    int64_t first = reader.getInteger(rule.key, 0, max).value_or(0);
    // -1, or no value, means the last layer.
    int64_t last = reader.getInteger(rule.second, -1, max).value_or(-1);
    rules.push_back([first, last](int64_t index) {
      return index >= first && (last < 0 || index <= last);
    });
    return;
  }
  case LayerRule::Enabled: {
    bool enabled = reader.getBoolean(rule.key);
    rules.push_back([enabled](int64_t) { return enabled; });
    return;
  }
  default:
    return;
  }
}

void DecoderLayers::addRule(const LayerRule &rule, KeyReader &reader) {
  for (const Key *key : {&rule.key, &rule.second})
    if (*key && reader.has(*key))
      keys.push_back(reader.show(*key));
  if (!addNames(rule, reader))
    addNumber(rule, reader);
}

bool DecoderLayers::hasExperts(int64_t index) const {
  if (count && index >= *count)
    return false;
  if (decisive)
    return (*decisive)(index);
  return llvm::all_of(rules, [&](const Rule &rule) { return rule(index); });
}

std::optional<int64_t> DecoderLayers::getMtpIndex(int64_t index) const {
  if (!count || index < *count || index >= *count + numMtp)
    return std::nullopt;
  return index - *count;
}

StringRef DecoderLayers::getWord(int64_t index) const {
  return index < int64_t(words.size()) ? StringRef(words[index]) : StringRef();
}

std::string DecoderLayers::listKeys() const {
  std::string text;
  for (auto [i, key] : enumerate(keys))
    text += (i == 0 ? "by " : i + 1 == keys.size() ? " and " : ", ") + key;
  return text.empty() ? "by its model type" : text;
}

/// "1 to 26", "1, 3, 5 and 20 more"
std::string DecoderLayers::listLayers() const {
  constexpr int64_t maxShown = 4;
  std::string text;
  int64_t end = count.value_or(kMaxLayers), numRuns = 0, numMore = 0;
  for (int64_t first = 0; first < end; ++first) {
    if (!hasExperts(first))
      continue;
    int64_t last = first;
    while (last + 1 < end && hasExperts(last + 1))
      ++last;
    if (++numRuns > maxShown) {
      numMore += last - first + 1;
    } else {
      text += (text.empty() ? "" : ", ") + std::to_string(first);
      if (last + 1 == kMaxLayers)
        text += " and all behind it";
      else if (last > first)
        text += " to " + std::to_string(last);
    }
    first = last;
  }
  if (numMore)
    text += " and " + std::to_string(numMore) + " more";
  return text;
}

std::optional<int64_t> DecoderLayers::choose(std::optional<int64_t> wanted,
                                             StringRef fileName,
                                             ImportContext &context) const {
  // Layers of multi-token prediction are of the kind of the last layer.
  if (wanted && *wanted >= 0 &&
      (hasExperts(*wanted) || (getMtpIndex(*wanted) && hasExperts(*count - 1))))
    return wanted;
  std::string having = listLayers();
  if (having.empty()) {
    context.diags.error(fileName,
                        "no decoder layer of this model has experts, " +
                            listKeys() + "; there is nothing to compile");
    return std::nullopt;
  }
  if (!wanted) {
    for (int64_t index = 0;; ++index)
      if (hasExperts(index))
        return index;
  }
  bool isInside = *wanted >= 0 && (!count || *wanted < *count);
  context.diags.error(
      fileName, "--layer=" + Twine(*wanted) +
                    (isInside ? Twine(": this decoder layer has no experts")
                              : ": the model has " + Twine(*count) +
                                    " decoder layers, counted from 0" +
                                    (numMtp ? ", and " + Twine(numMtp) +
                                                  " of multi-token prediction"
                                            : Twine())) +
                    "; those with experts are " + having);
  return std::nullopt;
}

} // namespace moec
