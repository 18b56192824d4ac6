//===- ExcludedModules.cpp - modules excluded from quantization -----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExcludedModules.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace llvm;

namespace moec {

namespace {

/// Index of the down projection among a family's module names, after gate and
/// up.
constexpr size_t kDown = 2;

/// Possible prefixes of `layers.N` in module names.
constexpr StringLiteral kPrefixes[] = {"",
                                       "model.",
                                       "model.language_model.",
                                       "language_model.model.",
                                       "language_model.",
                                       "thinker.model."};

/// The character class for an escape that llvm::Regex lacks; empty for any
/// other letter.
StringRef getClass(char letter) {
  return letter == 'd' ? "0-9" : letter == 'w' ? "A-Za-z0-9_" : "";
}

/// Translates a Python regular expression into the notation of llvm::Regex.
/// Returns false if llvm::Regex has no equivalent.
bool translateExpression(StringRef text, std::string &result) {
  bool isInBrackets = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    bool isQuantifier = StringRef("*+?}").contains(c);
    if (c == '\\' && i + 1 < text.size()) {
      char letter = text[++i];
      StringRef characters = getClass(letter);
      if (characters.empty() && isAlnum(letter))
        return false;
      if (!characters.empty())
        result +=
            isInBrackets ? characters.str() : ("[" + characters + "]").str();
      else if (!isInBrackets)
        (result += '\\') += letter;
      else if (letter == '.')
        // A backslash in brackets stands for itself in llvm::Regex.
        result += letter;
      else
        return false;
    } else if (isInBrackets) {
      // A bracket inside brackets means different things in the two notations.
      if (c == '[')
        return false;
      isInBrackets = c != ']';
      result += c;
    } else if (c == '[') {
      isInBrackets = true;
      result += c;
      // A closing bracket at the start is literal.
      for (char first : {'^', ']'})
        if (text.substr(i + 1).starts_with(first))
          result += text[++i];
    } else if (text.substr(i).starts_with("(?")) {
      if (!text.substr(i).starts_with("(?:"))
        return false;
      result += '(';
      i += 2;
    } else if (isQuantifier && text.substr(i + 1).starts_with("+")) {
      // A possessive quantifier matches fewer names.
      return false;
    } else {
      result += c;
      // A lazy quantifier matches the same names.
      if (isQuantifier && text.substr(i + 1).starts_with("?"))
        ++i;
    }
  }
  return Regex(result).isValid();
}

/// Translates a name or a part of one, matched at component boundaries; `*`
/// matches anything.
std::string translateName(StringRef text) {
  // "model.layers.0." ends at a component boundary.
  text.consume_back(".");
  std::string result = "(^|\\.)";
  for (char c : text) {
    if (c == '*')
      result += ".*";
    else if (isAlnum(c) || c == '_')
      result += c;
    else
      (result += '\\') += c;
  }
  return result + "($|\\.)";
}

/// Whether a name matches an expression of llvm::Regex.
std::function<bool(StringRef)> match(const std::string &expression) {
  return [regex = std::make_shared<Regex>(expression)](StringRef name) {
    return regex->match(name);
  };
}

} // namespace

ExcludedModules::ExcludedModules(const Family &family, const LayerSpec &spec,
                                 ModuleMatching matching)
    : family(family), spec(spec), matching(matching) {
  addExpert(0);
  addExpert(spec.numExperts - 1);
  if (spec.sharedExperts)
    for (auto [index, name] : llvm::enumerate(family.names.shared))
      addModule(index < kDown ? "shared_experts.w13" : "shared_experts.w2",
                name);
}

void ExcludedModules::addModule(StringRef weight, StringRef nameInBlock) {
  if (nameInBlock.empty())
    return;
  nameInBlock = nameInBlock.split('|').first;
  Module module;
  module.weight = weight;
  std::string layer = std::to_string(spec.layerIndex.value_or(0));
  // The block may have different names in the model and in the checkpoint.
  SmallVector<StringRef, 2> blocks = {family.names.block};
  if (family.names.block != "mlp")
    blocks.push_back("mlp");
  for (StringRef prefix : kPrefixes) {
    // compressed-tensors matches whole names, which start with the model's
    // module.
    if (prefix.empty() && matching == ModuleMatching::CompressedTensors)
      continue;
    for (StringRef block : blocks)
      module.names.push_back((prefix + "layers." + layer + "." + block +
                              (block.empty() ? "" : ".") + nameInBlock)
                                 .str());
  }
  // Earlier entries may also match it.
  for (const Entry &entry : entries)
    mark(module, entry);
  modules.push_back(std::move(module));
}

void ExcludedModules::addExpert(int64_t expert) {
  if (is_contained(experts, expert) || expert < 0 || expert >= spec.numExperts)
    return;
  experts.push_back(expert);
  for (auto [index, name] : llvm::enumerate(family.names.expert)) {
    auto [before, after] = name.split("{e}");
    addModule(index < kDown ? "experts.w13" : "experts.w2",
              (before + Twine(expert) + after).str());
  }
}

bool ExcludedModules::exclude(StringRef entry) {
  // The entry may name any single expert by its number.
  if (size_t at = entry.find("experts."); at != StringRef::npos) {
    int64_t expert = -1;
    if (!entry.substr(at + strlen("experts.")).consumeInteger(10, expert))
      addExpert(expert);
  }
  StringRef expression = entry;
  if (expression.consume_front("re:")) {
    // An expression with a digit may match any expert.
    if (llvm::any_of(expression, isDigit))
      for (int64_t expert = 0; expert < spec.numExperts; ++expert)
        addExpert(expert);
    std::string translated;
    if (!translateExpression(expression, translated))
      return false;
    entries.push_back({entry.str(), match("^(" + translated + ")")});
  } else if (matching == ModuleMatching::CompressedTensors) {
    // The class of the modules, and its base class.
    bool isClass = entry == "Linear" || entry == "Module";
    entries.push_back(
        {entry.str(), [isClass, name = entry.str()](StringRef of) {
           return isClass || of == name;
         }});
  } else {
    entries.push_back({entry.str(), match(translateName(entry))});
  }
  for (Module &module : modules)
    mark(module, entries.back());
  return true;
}

void ExcludedModules::mark(Module &module, const Entry &entry) {
  if (module.entry.empty() && llvm::any_of(module.names, entry.isNamed))
    module.entry = entry.text;
}

Coverage ExcludedModules::getCoverage(StringRef weight) const {
  bool hasKept = false, hasExcluded = false;
  for (const Module &module : modules)
    if (module.weight == weight)
      (module.entry.empty() ? hasKept : hasExcluded) = true;
  return !hasExcluded ? Coverage::None
         : hasKept    ? Coverage::Some
                      : Coverage::All;
}

bool ExcludedModules::coversAll() const {
  return llvm::all_of(spec.getExpertWeights(), [&](StringRef weight) {
    return getCoverage(weight) == Coverage::All;
  });
}

StringRef ExcludedModules::getFirstHit(StringRef weight) const {
  for (const Module &module : modules)
    if (module.weight == weight && !module.entry.empty())
      return module.entry;
  return {};
}

} // namespace moec
