//===- LaunchRewrites.cpp - list of rewrites and their options --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Transforms/LaunchRewrites.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace moec;
using llvm::StringRef;

namespace {

struct Known {
  StringRef name;
  RewriteRequirement requirement;
  llvm::SmallVector<StringRef, 2> parameters;
};

} // namespace

static llvm::ArrayRef<Known> getKnown() {
  static const Known all[] = {
#define LAUNCH_REWRITE(NAME, CLASS, REQUIRES, ...)                             \
  {NAME, RewriteRequirement::REQUIRES, {__VA_ARGS__}},
#include "LaunchRewrites.def"
  };
  return all;
}

llvm::SmallVector<StringRef> moec::getLaunchRewriteNames() {
  return llvm::map_to_vector(getKnown(),
                             [](const Known &known) { return known.name; });
}

static const Known *find(StringRef name) {
  const Known *known = llvm::find_if(
      getKnown(), [&](const Known &known) { return known.name == name; });
  return known == getKnown().end() ? nullptr : known;
}

bool moec::hasRequirement(StringRef name, RewriteRequirement requirement) {
  return find(name)->requirement == requirement;
}

std::string moec::whyOff(StringRef name, const LaunchFacts &facts,
                         llvm::ArrayRef<std::string> disabled) {
  if (llvm::is_contained(disabled, name))
    return "disabled";
  if (hasRequirement(name, RewriteRequirement::DependentLaunches) &&
      !facts.dependentLaunches)
    return "requires dependent launches, which are disabled";
  if (hasRequirement(name, RewriteRequirement::FreeSlots) && facts.keepsBuffers)
    return "requires slot assignment, but each buffer keeps its own slot";
  return {};
}

static llvm::Error unknown(StringRef what, StringRef text,
                           llvm::ArrayRef<StringRef> names) {
  return llvm::createStringError(what + " '" + text + "' is unknown; there " +
                                 (names.size() == 1 ? "is " : "are ") +
                                 llvm::join(names, ", "));
}

llvm::Error moec::checkLaunchRewrites(llvm::ArrayRef<std::string> names) {
  for (const std::string &name : names)
    if (!find(name))
      return unknown("rewrite", name, getLaunchRewriteNames());
  return llvm::Error::success();
}

llvm::Expected<RewriteParameter> RewriteParameter::parse(StringRef text) {
  auto [path, value] = text.split('=');
  auto [rewrite, name] = path.split('.');
  const Known *known = find(rewrite);
  if (!known)
    return unknown("rewrite", rewrite, getLaunchRewriteNames());
  if (known->parameters.empty())
    return llvm::createStringError("rewrite '" + rewrite +
                                   "' has no parameters");
  if (!llvm::is_contained(known->parameters, name))
    return unknown(("parameter of '" + rewrite + "'").str(), name,
                   known->parameters);
  RewriteParameter parameter{rewrite.str(), name.str(), 1};
  if (path.size() < text.size() &&
      (value.getAsInteger(10, parameter.value) || parameter.value < 0))
    return llvm::createStringError("'" + text +
                                   "': give an integer of at least 0");
  return parameter;
}

llvm::Expected<std::vector<RewriteParameter>>
moec::parseRewriteParameters(llvm::ArrayRef<std::string> texts) {
  std::vector<RewriteParameter> parameters;
  for (const std::string &text : texts) {
    llvm::Expected<RewriteParameter> parameter = RewriteParameter::parse(text);
    if (!parameter)
      return parameter.takeError();
    parameters.push_back(std::move(*parameter));
  }
  return parameters;
}
