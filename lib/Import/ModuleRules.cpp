//===- ModuleRules.cpp - which scheme a module has ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModuleRules.h"

#include "CheckpointNames.h"

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
constexpr StringLiteral kPrefixes[] = {"model.",
                                       "model.language_model.",
                                       "language_model.model.",
                                       "language_model.",
                                       "thinker.model.",
                                       "model.llm.",
                                       ""};

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

/// Translates a name or a part of one. `*` matches anything, `?` one character.
std::string translateName(StringRef text) {
  std::string result;
  for (char c : text) {
    if (c == '*')
      result += ".*";
    else if (c == '?')
      result += '.';
    else if (isAlnum(c) || c == '_')
      result += c;
    else
      (result += '\\') += c;
  }
  return result;
}

/// True if a module is meant that may have any of these names.
using Predicate = std::function<bool(ArrayRef<std::string> names)>;

/// Length of an expression up to a character outside of brackets and groups, or
/// up to its end.
size_t findOutside(StringRef text, char wanted) {
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (depth == 0 && c == wanted)
      return i;
    if (c == '\\')
      ++i;
    else if (c == '[')
      // A closing bracket at the start is literal.
      i = std::min(
          text.find(']', i + (text.substr(i + 1).starts_with("^") + 2)),
          text.size());
    else if (c == '(')
      ++depth;
    else if (c == ')' && depth > 0)
      --depth;
  }
  return text.size();
}

/// An expression without alternatives, behind what it looks ahead for.
struct Alternative {
  /// Expressions that match, or do not match, where the alternative begins.
  std::vector<Regex> wanted, unwanted;
  std::optional<Regex> body;

  bool matches(ArrayRef<std::string> names) const {
    // One of the names is the module's, and lists are written for that one: a
    // name that is unwanted excludes the module under all others.
    auto isIn = [](const std::vector<Regex> &list, StringRef name) {
      return llvm::any_of(
          list, [&](const Regex &regex) { return regex.match(name); });
    };
    bool isUnwanted = llvm::any_of(
        names, [&](StringRef name) { return isIn(unwanted, name); });
    return !isUnwanted && llvm::any_of(names, [&](StringRef name) {
      return (!body || body->match(name)) &&
             llvm::all_of(
                 wanted, [&](const Regex &regex) { return regex.match(name); });
    });
  }
};

/// Translates an alternative of a Python expression. llvm::Regex cannot look
/// ahead, so this is done only where the place is known: at the start of a
/// name.
std::optional<Alternative> readAlternative(StringRef text, Matching matching) {
  bool isFromStart = matching != Matching::Search;
  Alternative result;
  std::string translated;
  while (true) {
    if (text.consume_front("^")) {
      isFromStart = true;
      continue;
    }
    bool isPositive = text.starts_with("(?=");
    if (!isPositive && !text.starts_with("(?!"))
      break;
    text = text.drop_front(StringRef("(?=").size());
    size_t end = findOutside(text, ')');
    StringRef inner = text.take_front(end);
    text = text.drop_front(end);
    translated.clear();
    bool isClosed = text.consume_front(")");
    if (!isClosed || !translateExpression(inner, translated) ||
        (!text.empty() && StringRef("*+?{").contains(text.front())))
      return std::nullopt;
    (isPositive ? result.wanted : result.unwanted)
        .emplace_back("^(" + translated + ")");
  }
  bool looksAhead = !result.wanted.empty() || !result.unwanted.empty();
  if (looksAhead && !isFromStart)
    return std::nullopt;
  if (text.empty() && matching != Matching::Whole)
    return result;
  translated.clear();
  if (!translateExpression(text, translated))
    return std::nullopt;
  if (isFromStart)
    translated = "^(" + translated + ")";
  if (matching == Matching::Whole)
    translated += "$";
  result.body.emplace(translated);
  return result;
}

/// The rule of a Python expression; null if it cannot be translated.
Predicate readExpression(StringRef text, Matching matching) {
  auto alternatives = std::make_shared<std::vector<Alternative>>();
  while (true) {
    size_t end = findOutside(text, '|');
    std::optional<Alternative> next =
        readAlternative(text.take_front(end), matching);
    if (!next)
      return nullptr;
    alternatives->push_back(std::move(*next));
    if (end == text.size())
      break;
    text = text.drop_front(end + 1);
  }
  return [alternatives](ArrayRef<std::string> names) {
    return llvm::any_of(*alternatives, [&](const Alternative &alternative) {
      return alternative.matches(names);
    });
  };
}

/// True if one of the names matches an expression of llvm::Regex.
Predicate match(const std::string &expression) {
  return [regex = std::make_shared<Regex>(expression)](
             ArrayRef<std::string> names) {
    return llvm::any_of(names,
                        [&](StringRef name) { return regex->match(name); });
  };
}

/// The rule of a text; null for an expression that cannot be
/// translated.
Predicate makePredicate(Matching matching, StringRef text) {
  std::string own = text.str();
  switch (matching) {
  case Matching::End:
    return [own](ArrayRef<std::string> names) {
      return llvm::any_of(names, [&](StringRef name) {
        return name.consume_back(own) && (name.empty() || name.back() == '.');
      });
    };
  case Matching::Components:
    // "model.layers.0." ends at a component boundary.
    text.consume_back(".");
    text.consume_front(".");
    return match("(^|\\.)" + translateName(text) + "($|\\.)");
  case Matching::Glob:
    return match("^" + translateName(text) + "$");
  case Matching::ParentGlob:
    return match("^" + translateName(text) + "($|\\.)");
  case Matching::Expression:
  case Matching::Whole:
  case Matching::Search:
    return readExpression(text, matching);
  case Matching::Name:
  case Matching::Parent:
  case Matching::Class:
    return nullptr;
  }
  llvm_unreachable("every rule is listed");
}

/// Whether modules of a weight are of a class, or have it as a base.
bool isOfClass(const LayerModule &module, StringRef name) {
  constexpr StringLiteral always[] = {"Linear", "Module"};
  // Classes of all experts together in engines.
  constexpr StringLiteral routed[] = {"FusedMoE", "RoutedExperts"};
  return is_contained(always, name) ||
         (is_contained(routed, name) && module.weight.starts_with("experts."));
}

size_t countDigits(int64_t number) { return std::to_string(number).size(); }

} // namespace

//===----------------------------------------------------------------------===//
// The layer's modules
//===----------------------------------------------------------------------===//

LayerModules::LayerModules(const Family &family, const LayerSpec &spec,
                           bool areMlx)
    : family(family), spec(spec), areMlx(areMlx) {
  std::string layer = std::to_string(spec.layerIndex.value_or(0));
  // The block may have different names in the model and in the checkpoint.
  SmallVector<StringRef, 2> blocks = {family.names.block};
  if (family.names.block != "mlp")
    blocks.push_back("mlp");
  auto add = [&](const Twine &scope) {
    for (StringRef block : blocks)
      prefixes.push_back(
          (scope + "." + block + (block.empty() ? "" : ".")).str());
  };
  if (family.names.haveBanks)
    prefixes.assign(std::begin(kPrefixes), std::end(kPrefixes));
  else
    for (StringRef prefix : kPrefixes)
      add(prefix + "layers." + layer);
  if (spec.mtpIndex)
    for (StringRef prefix : {"mtp.", "model.mtp."})
      add(prefix + "layers." + Twine(*spec.mtpIndex));
}

ArrayRef<StringLiteral> LayerModules::getWeights() const {
  return spec.getExpertWeights();
}

int64_t LayerModules::getNumExperts(StringRef weight) const {
  return weight.starts_with("experts.") ? spec.numExperts : 1;
}

std::vector<LayerModule> LayerModules::get(StringRef weight,
                                           int64_t expert) const {
  bool isRouted = weight.starts_with("experts.");
  bool isDown = weight.ends_with(".w2");
  const StringRef(&all)[3] =
      isRouted ? family.names.expert : family.names.shared;
  std::vector<LayerModule> modules;
  for (size_t projection = 0; projection <= kDown; ++projection) {
    if ((projection == kDown) != isDown || (projection == 0 && !spec.isGated()))
      continue;
    LayerModule module{weight, expert, projection, {}};
    // Parameters of all experts count as modules too: Transformers lists them.
    StringRef together = isRouted ? family.names.fused[isDown]
                         : isDown ? StringRef()
                                  : family.names.sharedFused;
    module.isAlwaysChosen =
        isRouted && expert >= spec.numExperts - spec.numAlwaysChosen;
    if (module.isAlwaysChosen)
      together = family.names.always[isDown];
    std::string listed =
        isRouted ? putExpertLast(all[projection]) : std::string();
    for (StringRef alternatives :
         {all[projection], together, StringRef(listed),
          isRouted && areMlx ? StringRef(kTogether[projection])
                             : StringRef()}) {
      SmallVector<StringRef> names;
      alternatives.split(names, '|', -1, /*KeepEmpty=*/false);
      for (StringRef name : names) {
        auto [before, after] = name.split("{e}");
        std::string own = numberName(
            name.contains("{e}") ? (before + Twine(expert) + after).str()
                                 : name.str(),
            spec);
        for (const std::string &prefix : prefixes)
          // Names of modules begin with the model's module.
          if (!StringRef(prefix).starts_with("layers."))
            module.names.push_back(prefix + own);
      }
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

std::vector<LayerModule> LayerModules::getDense() const {
  std::vector<LayerModule> dense;
  auto add = [&](StringRef weight, StringRef alternatives) {
    LayerModule module{weight, 0, 0, {}};
    SmallVector<StringRef> names;
    alternatives.split(names, '|', -1, /*KeepEmpty=*/false);
    for (StringRef name : names)
      if (name.consume_back(".weight"))
        for (const std::string &prefix : prefixes)
          module.names.push_back(prefix + numberName(name, spec));
    if (!module.names.empty())
      dense.push_back(std::move(module));
  };
  if (spec.entry == Entry::Gate && !spec.routing.splitGate)
    add("gate.weight", family.names.gate);
  if (spec.sharedExperts && spec.sharedExperts->gate != SharedGate::None)
    add("shared_experts.gate", family.names.sharedGate);
  return dense;
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

void ModuleRules::add(Matching matching, StringRef text, int scheme) {
  [[maybe_unused]] bool isAdded = addRule(matching, text, scheme);
  assert(isAdded && "only expressions may be unreadable");
}

bool ModuleRules::addExpression(Matching matching, StringRef text, int scheme) {
  return addRule(matching, text, scheme);
}

bool ModuleRules::addRule(Matching matching, StringRef text, int scheme) {
  cache.clear();
  Rule rule{text.str(), scheme, nullptr};
  if (matching == Matching::Name) {
    wholeNames.try_emplace(text, rules.size());
  } else if (matching == Matching::Parent) {
    parents.try_emplace(text, rules.size());
  } else if (matching == Matching::Class) {
    rule.matches = [name = text.str()](const LayerModule &module) {
      return isOfClass(module, name);
    };
  } else {
    Predicate isNamed = makePredicate(matching, text);
    if (!isNamed)
      return false;
    rule.matches = [isNamed](const LayerModule &module) {
      return isNamed(module.names);
    };
    tellExpertsApart |= llvm::any_of(text, isDigit);
  }
  rules.push_back(std::move(rule));
  return true;
}

size_t ModuleRules::findPattern(const LayerModule &module) const {
  auto find = [&] {
    auto rule = llvm::find_if(rules, [&](const Rule &rule) {
      return rule.matches && rule.matches(module);
    });
    return size_t(rule - rules.begin());
  };
  if (tellExpertsApart)
    return find();
  auto [entry, isNew] = cache.try_emplace(
      {module.weight.str(), module.projection, countDigits(module.expert)}, 0);
  if (isNew)
    entry->second = find();
  return entry->second;
}

ModuleRules::Choice ModuleRules::choose(const LayerModule &module) const {
  size_t first = findPattern(module);
  auto lookUp = [&](const StringMap<size_t> &names, StringRef name) {
    if (auto rule = names.find(name); rule != names.end())
      first = std::min(first, rule->second);
  };
  for (StringRef name : module.names) {
    lookUp(wholeNames, name);
    for (; !parents.empty() && !name.empty(); name = name.rsplit('.').first) {
      lookUp(parents, name);
      if (!name.contains('.'))
        break;
    }
  }
  if (first == rules.size())
    return {fallback, {}};
  return {rules[first].scheme, rules[first].text};
}

} // namespace moec
