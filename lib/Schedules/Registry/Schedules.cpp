//===- Schedules.cpp - the ways to run a phase on a target ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"
#include "moec/Schedules/Rewrites/JoinRouting.h"
#include "moec/Schedules/Rewrites/QuantizeRows.h"
#include "moec/Schedules/SumOrder.h"
#include "moert/HostDevice.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

static constexpr llvm::StringLiteral kProductNames[] = {"fma", "vnni", "bf16",
                                                        "amx"};

std::optional<CpuProducts> Target::findProducts(StringRef name) {
  for (auto [i, known] : llvm::enumerate(kProductNames))
    if (name == known)
      return CpuProducts(i);
  return std::nullopt;
}

StringRef Target::getName(CpuProducts products) {
  return kProductNames[int(products)];
}

Target Target::cpuWith(function_ref<bool(StringRef)> hasFeature) {
  if (!hasFeature("avx512f") && hasFeature("avxvnni"))
    return cpu(8, CpuProducts::Vnni);
  if (!hasFeature("avx512f"))
    return cpu(hasFeature("avx2") ? 8 : 4);
  if (!hasFeature("avx512vnni"))
    return cpu(16);
  if (!hasFeature("avx512bf16"))
    return cpu(16, CpuProducts::Vnni);
  bool hasTiles = hasFeature("amx-tile") && hasFeature("amx-bf16") &&
                  hasFeature("amx-int8");
  return cpu(16, hasTiles ? CpuProducts::Amx : CpuProducts::Bf16);
}

Target Target::hostCpu() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return cpuWith([&](StringRef name) {
    return features.lookup(name) &&
           (!name.starts_with("amx") || moert::allowTileRegisters());
  });
}

ArrayRef<llvm::StringLiteral> Target::getNames() {
  static constexpr llvm::StringLiteral names[] = {
#define MOEC_TARGET(ARCHITECTURE, NAME, ...) NAME,
#include "moec/Support/Targets.def"
  };
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
                                   StringRef part, StringRef products) {
  if (!llvm::is_contained(getNames(), name) || !whyNotPart(name, part).empty())
    return std::nullopt;
  if (name == "cpu") {
    Target target = lanes ? cpu(lanes) : hostCpu();
    if (products.empty())
      return target;
    std::optional<CpuProducts> found = findProducts(products);
    if (!found)
      return std::nullopt;
    target.products = *found;
    return target;
  }
  return Target{name.str(), 0, CpuProducts::Fma,
                part.empty() ? getDefaultPart(name) : findPart(part)};
}

std::optional<Target> Target::findFor(Operation *op, StringRef pass,
                                      StringRef name, int64_t lanes,
                                      StringRef part, StringRef products) {
  std::optional<Target> target = find(name, lanes, part, products);
  if (!products.empty() && !findProducts(products)) {
    InFlightDiagnostic diagnostic = op->emitError(pass)
                                    << ": products '" << products
                                    << "' are unknown; accepted are ";
    llvm::interleaveComma(kProductNames, diagnostic);
  } else if (!target && llvm::is_contained(getNames(), name))
    op->emitError(pass) << ": part " << whyNotPart(name, part);
  else if (!target) {
    InFlightDiagnostic diagnostic = op->emitError(pass)
                                    << ": target '" << name
                                    << "' is unknown; accepted are ";
    llvm::interleaveComma(getNames(), diagnostic);
  }
  return target;
}

//===----------------------------------------------------------------------===//
// Legality
//===----------------------------------------------------------------------===//

static std::string print(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

/// Reason why the config's order is not the `sum_order` of the op; empty if
/// there is none, or if both are equal.
static std::string whyOtherOrder(const Schedule &schedule, Operation *op,
                                 tile::ConfigAttr config) {
  auto gemm = dyn_cast<tile::GemmOp>(op);
  if (!gemm || !gemm.getSumOrderAttr())
    return {};
  const auto *orders = schedule.as<OrdersSums>();
  if (!orders)
    return "the schedule does not say in which order it adds, but "
           "'sum_order' is " +
           print(gemm.getSumOrderAttr());
  tile::SumOrderAttr found = orders->getSumOrder(gemm, config);
  if (found == gemm.getSumOrderAttr())
    return {};
  return "it adds in the order " + print(found) + ", but 'sum_order' is " +
         print(gemm.getSumOrderAttr());
}

std::string Schedule::whyIllegal(Operation *op, tile::ConfigAttr config,
                                 const Target &target) const {
  auto gemm = dyn_cast<tile::GemmOp>(op);
  if (gemm && gemm.getQuantizesInput() && !as<QuantizesRows>())
    return "this schedule does not quantize the rows that it copies; remove "
           "'quantizes_input', and quantize by a tile.quantize";
  std::string reason = whyConfigIllegal(op, config, target);
  if (gemm && gemm.getCleared() && !as<ClearsCounters>())
    return "this schedule clears no counter; remove 'cleared'";
  return reason.empty() ? whyOtherOrder(*this, op, config) : reason;
}

tile::SumOrderAttr moec::getSumOrder(tile::GemmOp op, tile::ConfigAttr config,
                                     const Target &target) {
  const Schedule *schedule = findSchedule(target, config.getSchedule());
  const auto *orders = schedule ? schedule->as<OrdersSums>() : nullptr;
  return orders ? orders->getSumOrder(op, config) : nullptr;
}

//===----------------------------------------------------------------------===//
// The list
//===----------------------------------------------------------------------===//

namespace {

// Sets of architectures, by the names in Schedules.def.
#define MOEC_TARGET(ARCHITECTURE, ...)                                         \
  constexpr unsigned ARCHITECTURE = 1u << unsigned(Architecture::ARCHITECTURE);
#include "moec/Support/Targets.def"
constexpr unsigned EveryGpu = ~Cpu;

/// A row of Schedules.def.
struct ListedSchedule {
  const Schedule *schedule;
  unsigned architectures;
};

} // namespace

/// The listed schedules that run on one of `architectures`.
static std::vector<const Schedule *> findListed(unsigned architectures) {
  const ListedSchedule listed[] = {
#define MOEC_CPU_SCHEDULE(NAME, OP) {&getCpu##NAME##Schedule(), Cpu},
#define MOEC_GPU_SCHEDULE(NAME, TARGETS) {&get##NAME##Schedule(), TARGETS},
#define MOEC_GPU_CHOICE(NAME, CODE, TARGETS) {&get##NAME##Schedule(), TARGETS},
#include "moec/Schedules/Schedules.def"
  };
  std::vector<const Schedule *> found;
  for (const ListedSchedule &row : listed)
    if (row.architectures & architectures)
      found.push_back(row.schedule);
  return found;
}

ArrayRef<const Schedule *> moec::getSchedules(const Target &target) {
  static const std::vector<const Schedule *> lists[] = {
#define MOEC_TARGET(ARCHITECTURE, ...) findListed(ARCHITECTURE),
#include "moec/Support/Targets.def"
  };
  return lists[unsigned(target.getArchitecture())];
}

ArrayRef<const Schedule *> moec::getGpuSchedules() {
  static const std::vector<const Schedule *> all = findListed(EveryGpu);
  return all;
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
