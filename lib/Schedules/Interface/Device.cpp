//===- Device.cpp - rates of a GPU ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Device.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <iterator>

using namespace moec;

static constexpr PartFit kH200 = {
#include "Fits/h200.inc"
};
static constexpr PartFit kH100Sxm = {
#include "Fits/h100_sxm.inc"
};

/// Measured parts, each by `moe-bench --fit` or as its entry says.
static constexpr const PartFit *kFits[] = {&kH200, &kH100Sxm};

/// The fit of another part, as if all properties that are not published were
/// equal.
static PartFit borrow(const PartFit &fit, const PartFacts &from,
                      const PartFacts &part) {
  PartFit borrowed = fit;
  double read = part.sheetReadBytes / from.sheetReadBytes;
  borrowed.readBytes *= read;
  borrowed.copyBytes *= read;
  borrowed.bf16Operations *=
      part.sheetBf16Operations / from.sheetBf16Operations;
  borrowed.fp8Operations *= part.sheetFp8Operations / from.sheetFp8Operations;
  double cache = double(part.l2Bytes) / double(from.l2Bytes);
  borrowed.l2KeptBytes *= cache;
  borrowed.rasterGroupBytes *= cache;
  borrowed.power *= part.sheetPower / from.sheetPower;
  auto getSheetClock = [](const PartFacts &facts) {
    return facts.sheetBf16Operations /
           (facts.operationsPerClk * double(facts.multiprocessors));
  };
  borrowed.tensorClock *= getSheetClock(part) / getSheetClock(from);
  return borrowed;
}

static std::vector<DeviceRates> makeRates() {
  std::vector<DeviceRates> rates;
  for (const PartFacts &part : getParts()) {
    const auto *own = llvm::find_if(
        kFits, [&](const PartFit *fit) { return fit->fittedOn == part.name; });
    // No nearer part has been measured yet.
    rates.push_back({part,
                     own != std::end(kFits)
                         ? **own
                         : borrow(kH200, *findPart("h200"), part),
                     std::nullopt});
  }
  return rates;
}

const DeviceRates &moec::getPartRates(const PartFacts &part) {
  static const std::vector<DeviceRates> rates = makeRates();
  return *llvm::find_if(rates, [&](const DeviceRates &candidate) {
    return candidate.name == part.name;
  });
}

const DeviceRates *moec::getDeviceRates(const Target &target) {
  if (target.rates)
    return target.rates;
  return target.getFacts().hasModel && target.part ? &getPartRates(*target.part)
                                                   : nullptr;
}

double HostRates::getReadBytes(double size) const {
  auto above =
      llvm::find_if(reads, [&](const Read &read) { return read.size >= size; });
  if (above == reads.begin())
    return above->bytesPerSecond;
  if (above == reads.end())
    return reads.back().bytesPerSecond;
  const Read &below = *std::prev(above);
  double part =
      std::log(size / below.size) / std::log(above->size / below.size);
  return below.bytesPerSecond +
         part * (above->bytesPerSecond - below.bytesPerSecond);
}

DeviceRates moec::makeHostRates(HostRates host) {
  DeviceRates rates{};
  rates.name = rates.architecture = rates.fittedOn = llvm::StringLiteral("cpu");
  rates.phrase = llvm::StringLiteral("this CPU");
  rates.readBytes = rates.copyBytes = host.reads.back().bytesPerSecond;
  rates.bf16Operations = rates.fp8Operations = host.fmas;
  rates.launchUs = host.launchUs;
  rates.host = std::move(host);
  return rates;
}

std::string DeviceRates::describe() const {
  if (host)
    return host->name;
  if (isMeasured())
    return phrase.str();
  return phrase.str() + ", with coefficients fitted on " +
         findPart(fittedOn)->phrase.str();
}
