//===- Schedules.cpp - the ways to run a phase on a target ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScheduleTables.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

Target Target::hostCpu() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx512f"))
    return cpu(16);
  return cpu(features.lookup("avx2") ? 8 : 4);
}

ArrayRef<llvm::StringLiteral> Target::getNames() {
  static constexpr llvm::StringLiteral names[] = {"cpu", "sm_80", "sm_90a",
                                                  "sm_100a"};
  return names;
}

int64_t Target::getSharedBytes() const {
  const PartFacts *facts = part ? part : getUnknownPart(name);
  return facts ? facts->sharedBytesPerCta : 0;
}

bool Target::convertsFloat8() const {
  const PartFacts *facts = getUnknownPart(name);
  return facts && facts->convertsFloat8;
}

std::optional<Target> Target::find(StringRef name, int64_t lanes,
                                   StringRef part) {
  if (!llvm::is_contained(getNames(), name) || !whyNotPart(name, part).empty())
    return std::nullopt;
  if (name == "cpu")
    return lanes ? cpu(lanes) : hostCpu();
  return Target{name.str(), 0,
                part.empty() ? getDefaultPart(name) : findPart(part)};
}

std::optional<Target> Target::findFor(Operation *op, StringRef pass,
                                      StringRef name, int64_t lanes,
                                      StringRef part) {
  std::optional<Target> target = find(name, lanes, part);
  if (!target && llvm::is_contained(getNames(), name))
    op->emitError(pass) << ": part " << whyNotPart(name, part);
  else if (!target) {
    InFlightDiagnostic diagnostic = op->emitError(pass)
                                    << ": target '" << name
                                    << "' is unknown; accepted are ";
    llvm::interleaveComma(getNames(), diagnostic);
  }
  return target;
}

ArrayRef<const Schedule *> moec::getSchedules(const Target &target) {
  if (target.name == "sm_90a")
    return getSm90Schedules();
  if (target.name == "sm_100a")
    return getSm100Schedules();
  return target.isGpu() ? getSm80Schedules() : getCpuSchedules();
}

const Schedule *moec::findSchedule(const Target &target, StringRef name) {
  for (const Schedule *schedule : getSchedules(target))
    if (schedule->name == name)
      return schedule;
  return nullptr;
}

SmallVector<const Schedule *> moec::getSchedulesFor(const Target &target,
                                                    Operation *op) {
  SmallVector<const Schedule *> schedules;
  for (const Schedule *schedule : getSchedules(target))
    if (schedule->opName == op->getName().getStringRef())
      schedules.push_back(schedule);
  std::stable_partition(
      schedules.begin(), schedules.end(),
      [&](const Schedule *schedule) { return schedule->isPreferred(op); });
  return schedules;
}
