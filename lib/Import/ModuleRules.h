//===- ModuleRules.h - which scheme a module has ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A quantization tool gives schemes to modules by their names: lists of modules
// that stay as they are, targets of groups, overrides by expression. Each
// tool's lists become rules of one kind here, and one function maps a module of
// the layer to a scheme.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_MODULERULES_H
#define MOEC_LIB_IMPORT_MODULERULES_H

#include "Families/Family.h"

#include "llvm/ADT/StringMap.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moec {

/// A matrix of a layer's experts, under the names that models give it.
struct LayerModule {
  /// The weight of the layer that contains it: "experts.w13".
  llvm::StringRef weight;
  /// 0 for a shared expert.
  int64_t expert = 0;
  /// Gate, up or down.
  size_t projection = 0;
  /// With the path of the model ("model.layers.3.mlp.experts.0.up_proj").
  std::vector<std::string> names;
  /// Every token has the expert; its matrices may be in a parameter of their
  /// own.
  bool isAlwaysChosen = false;
};

/// The names of the modules of one layer.
class LayerModules {
public:
  /// `areMlx`: modules have the names of MLX's models too, which lists of other
  /// tools would match.
  LayerModules(const Family &family, const LayerSpec &spec,
               bool areMlx = false);

  /// Weights with quantizable modules, as `LayerSpec::getExpertWeights`.
  llvm::ArrayRef<llvm::StringLiteral> getWeights() const;
  /// Number of experts with a module of this weight.
  int64_t getNumExperts(llvm::StringRef weight) const;
  /// The matrices of a weight's expert: gate and up, or down.
  std::vector<LayerModule> get(llvm::StringRef weight, int64_t expert) const;
  /// The router and the gate of shared experts, which a tool may quantize too.
  /// Empty if names of modules do not tell.
  std::vector<LayerModule> getDense() const;
  /// The block's prefixes in the names of modules ("model.layers.3.mlp.").
  llvm::ArrayRef<std::string> getPrefixes() const { return prefixes; }

private:
  const Family &family;
  const LayerSpec &spec;
  bool areMlx;
  std::vector<std::string> prefixes;
};

/// Rule by which a text names modules.
enum class Matching {
  /// A whole name.
  Name,
  /// A name, or that of a parent.
  Parent,
  /// A name, a component of it, or a parent, with `*`. Tools whose lists are
  /// read so differ in detail; this is their common subset.
  Components,
  /// The end of a name, from a component on.
  End,
  /// A whole name with `*`.
  Glob,
  /// A name, or that of a parent, with `*`.
  ParentGlob,
  /// A Python expression that matches from the start of a name to any place in
  /// it, as `re.match`.
  Expression,
  /// A Python expression that matches a whole name, as `re.fullmatch`.
  Whole,
  /// A Python expression that matches anywhere, as `re.search`.
  Search,
  /// The class of a module.
  Class,
};

/// Remedy for an expression that cannot be translated.
inline constexpr llvm::StringLiteral kReadableExpressions =
    "expressions without flags, back-references and \\b, and with (?!...) and "
    "(?=...) only at their start";

/// Rules in order: the first one that names a module decides.
class ModuleRules {
public:
  static constexpr int kNotQuantized = -1;

  /// Adds a rule, of any kind but an expression.
  void add(Matching matching, llvm::StringRef text, int scheme);
  /// Adds a rule. Returns false for an expression that cannot be translated;
  /// `kReadableExpressions` says which can.
  [[nodiscard]] bool addExpression(Matching matching, llvm::StringRef text,
                                   int scheme);
  /// The scheme of modules that no rule names.
  void setDefault(int scheme) { fallback = scheme; }

  struct Choice {
    int scheme = kNotQuantized;
    /// The rule's text; empty for the default.
    llvm::StringRef text;
  };
  Choice choose(const LayerModule &module) const;

private:
  struct Rule {
    std::string text;
    int scheme;
    /// Null for rules of names.
    std::function<bool(const LayerModule &)> matches;
  };
  bool addRule(Matching matching, llvm::StringRef text, int scheme);
  size_t findPattern(const LayerModule &module) const;

  std::vector<Rule> rules;
  /// The first rule of each name, of a module or of a parent: tools list every
  /// module of a model.
  llvm::StringMap<size_t> wholeNames, parents;
  /// Results of the other rules, if no rule has a number: by weight,
  /// projection and number of digits of the expert.
  mutable std::map<std::tuple<std::string, size_t, size_t>, size_t> cache;
  bool tellExpertsApart = false;
  int fallback = kNotQuantized;
};

} // namespace moec

#endif // MOEC_LIB_IMPORT_MODULERULES_H
