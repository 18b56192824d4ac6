//===- Device.cpp - rates of a GPU ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

#include "llvm/ADT/STLExtras.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3). Fitted together: to times of products under load at
/// the sizes of layers (benchmarks/results/sm90_loads_h200.json: 170 of bf16,
/// 3.4 % off, root mean square; 109 of e4m3, 6.1 %), to 223 in tiles of one
/// height (sm90_tiles_h200.json; 4.5 %), and to 48 of whole layers (2.8 %).
/// Assumed: until somebody measures it.
static constexpr PartFit kH200 = {
    /*fittedOn=*/"h200",
    /*readBytes=*/4.54e12,        // B/s, measured: 4.39 to 4.54
    /*bf16Operations=*/799e12,    // 1/s, measured: 785 to 799, cool
    /*fp8Operations=*/1491e12,    // 1/s, measured, cool
    /*copyBytes=*/3.7e12,         // B/s, assumed: 0.85 of a copy's 4.3
    /*streamShare=*/0.984,        // fitted
    /*smReadBytes=*/84.7e9,       // B/s, fitted
    /*latencyUs=*/0.643,          // us, fitted
    /*stagesRead=*/1.93,          // fitted
    /*unevenShare=*/0.097,        // fitted
    /*uncertainShare=*/0.5,       // assumed
    /*l2BytesPerClk=*/7660,       // B/clk, fitted; others measured 6100
    /*l2KeptBytes=*/36e6,         // B, assumed: of 60 MB in two halves
    /*power=*/570,                // W, assumed: 700 by design, 130 idle
    /*readEnergy=*/34.5e-12,      // J/B, fitted
    /*l2Energy=*/33.6e-12,        // J/B, fitted
    /*bf16Energy=*/0.339e-12,     // J, fitted
    /*fp8Energy=*/0.35e-12,       // J, fitted, with promotion
    /*tensorClock=*/1.755e9,      // Hz, assumed: of 1.98, a little warm
    /*tensorShare=*/0.812,        // fitted
    /*productClk=*/17,            // clk, fitted: 2 KiB at 128 B/clk, and issue
    /*stepClk=*/236,              // clk, fitted
    /*itemClk=*/379,              // clk, fitted
    /*epilogueExposed=*/2.51,     // fitted: instructions wait for each other
    /*gatherShare=*/0.021,        // fitted
    /*gatherL2Share=*/0.487,      // fitted
    /*bodiesShare=*/0.024,        // fitted
    /*queueShare=*/0.03,          // measured: 0.017 to 0.044
    /*bandBytes=*/20e6,           // B, measured: 17e6 stay, 34e6 do not
    /*unevenDeviations=*/3.7,     // fitted
    /*promotionExposed=*/2.65,    // fitted, with loads of scales
    /*rowPromotionExposed=*/0.12, // fitted
    /*launchUs=*/1.5,             // us, fitted: 3.73 together with
    /*prologueUs=*/0.87,          // us
    /*firstBytesUs=*/0.87,        // us
    /*drainUs=*/0.49,             // us
    /*overlapOrder=*/5.64,        // fitted
};

/// Parts that were measured.
static constexpr const PartFit *kFits[] = {&kH200};

/// The fit of another part, as if all that is not published were the same.
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
  borrowed.bandBytes *= cache;
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
    // There is no nearer one yet.
    rates.push_back({part, own != std::end(kFits)
                               ? **own
                               : borrow(kH200, *findPart("h200"), part)});
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
  // Of other targets no schedule has a model.
  bool hasModel = target.name == "sm_90a";
  return hasModel && target.part ? &getPartRates(*target.part) : nullptr;
}

std::string DeviceRates::describe() const {
  if (isMeasured())
    return phrase.str();
  return phrase.str() + ", with coefficients fitted on " +
         findPart(fittedOn)->phrase.str();
}
