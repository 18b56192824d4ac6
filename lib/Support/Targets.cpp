//===- Targets.cpp - what kernels are compiled for --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Targets.h"

#include "moert/GpuTarget.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace moec;
using llvm::StringRef;
using moert::GpuTarget;

static constexpr TargetFacts kTargets[] = {
#define MOEC_TARGET(ARCHITECTURE, ...)                                         \
  {Architecture::ARCHITECTURE, __VA_ARGS__},
#include "moec/Support/Targets.def"
};

/// All names, each behind a '|'.
static constexpr llvm::StringLiteral kChoices =
#define MOEC_TARGET(ARCHITECTURE, NAME, ...) "|" NAME
#include "moec/Support/Targets.def"
    ;

llvm::ArrayRef<TargetFacts> moec::getTargets() { return kTargets; }

const TargetFacts *moec::findTarget(StringRef name) {
  const TargetFacts *found = llvm::find_if(
      kTargets, [&](const TargetFacts &target) { return target.name == name; });
  return found == std::end(kTargets) ? nullptr : found;
}

std::string moec::chooseTarget(StringRef architecture) {
  std::optional<GpuTarget> device = GpuTarget::parse(architecture.str());
  std::string best;
  int bestRank = -1;
  if (!device)
    return best;
  for (const TargetFacts &facts : kTargets) {
    std::optional<GpuTarget> target = GpuTarget::parse(facts.name.str());
    if (!target || !target->runsOn(*device))
      continue;
    int rank = target->number() * 2 + (target->suffix != 0);
    if (rank > bestRank) {
      best = facts.name.str();
      bestRank = rank;
    }
  }
  return best;
}

std::string moec::resolveTarget(StringRef name) {
  std::string chosen = findTarget(name) ? std::string() : chooseTarget(name);
  return chosen.empty() ? name.str() : chosen;
}

StringRef moec::getTargetChoices() { return kChoices.drop_front(); }

StringRef moec::getGpuTargetChoices() {
  return getTargetChoices().split('|').second;
}

std::string moec::listGpuTargets() {
  return llvm::join(llvm::split(getGpuTargetChoices(), '|'), ", ");
}
