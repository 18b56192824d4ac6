//===- ExcludedModules.cpp - modules kept from quantization -----*- C++ -*-===//
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

/// Where the second product's matrix stands in the names of a family, behind
/// gate and up.
constexpr size_t kDown = 2;

/// What may stand before `layers.N` in the names of modules.
constexpr StringLiteral kPrefixes[] = {"",
                                       "model.",
                                       "model.language_model.",
                                       "language_model.model.",
                                       "language_model.",
                                       "thinker.model."};

/// Python's regular expressions in the notation of LLVM's. False for what that
/// does not have.
bool translateExpression(StringRef text, std::string &result) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("(?")) {
      if (!text.substr(i).starts_with("(?:"))
        return false;
      result += '(';
      i += 2;
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      char c = text[++i];
      if (c == 'd')
        result += "[0-9]";
      else if (c == 'w')
        result += "[A-Za-z0-9_]";
      else if (isAlnum(c))
        return false;
      else
        (result += '\\') += c;
    } else {
      result += text[i];
    }
  }
  return Regex(result).isValid();
}

/// A name or a part of it, at the borders of its components; `*` is anything.
std::string translateName(StringRef text) {
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

} // namespace

ExcludedModules::ExcludedModules(const Family &family, const LayerSpec &spec)
    : family(family), spec(spec) {
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
  // Models in memory and checkpoints differ in what they call the block.
  SmallVector<StringRef, 2> blocks = {family.names.block};
  if (family.names.block != "mlp")
    blocks.push_back("mlp");
  for (StringRef prefix : kPrefixes)
    for (StringRef block : blocks)
      module.names.push_back((prefix + "layers." + layer + "." + block +
                              (block.empty() ? "" : ".") + nameInBlock)
                                 .str());
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
  // An expert that is named by its number may be any.
  if (size_t at = entry.find("experts."); at != StringRef::npos) {
    int64_t expert = -1;
    if (!entry.substr(at + strlen("experts.")).consumeInteger(10, expert))
      addExpert(expert);
  }
  std::string expression;
  if (entry.consume_front("re:")) {
    expression = "^(";
    std::string translated;
    if (!translateExpression(entry, translated))
      return false;
    expression += translated + ")";
  } else {
    expression = translateName(entry);
  }
  Regex regex(expression);
  for (Module &module : modules) {
    if (!llvm::any_of(module.names,
                      [&](StringRef name) { return regex.match(name); }))
      continue;
    if (module.entry.empty())
      module.entry = entry.str();
  }
  return true;
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
