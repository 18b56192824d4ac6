//===- Device.cpp - rates of a GPU, measured --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3). Fitted together: to times of products under load at
/// the sizes of layers (benchmarks/results/sm90_loads_h200.json: 170 of bf16,
/// 3.4 % off, root mean square; 109 of e4m3, 6.1 %), to 223 in tiles of one
/// height (sm90_tiles_h200.json; 4.5 %), and to 48 of whole layers (2.8 %).
/// Assumed: until somebody measures it.
static constexpr DeviceRates kH200 = {
    "H200",
    /*multiprocessors=*/132,
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
    /*smL2BytesPerClk=*/64,       // B/clk, by design
    /*l2KeptBytes=*/36e6,         // B, assumed: of 60 MB in two halves
    /*power=*/570,                // W, assumed: 700 by design, 130 idle
    /*readEnergy=*/34.5e-12,      // J/B, fitted
    /*l2Energy=*/33.6e-12,        // J/B, fitted
    /*bf16Energy=*/0.339e-12,     // J, fitted
    /*fp8Energy=*/0.35e-12,       // J, fitted, with promotion
    /*tensorClock=*/1.755e9,      // Hz, assumed: of 1.98, a little warm
    /*operationsPerClk=*/4096,    // 1/clk, by design
    /*tensorShare=*/0.812,        // fitted
    /*productClk=*/17,            // clk, fitted: 2 KiB at 128 B/clk, and issue
    /*sharedBytesPerClk=*/128,    // B/clk, by design
    /*stepClk=*/236,              // clk, fitted
    /*itemClk=*/379,              // clk, fitted
    /*epilogueLinesPerClk=*/128,  // 1/clk, by design: four schedulers
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

const DeviceRates *moec::getDeviceRates(const Target &target) {
  return target.name == "sm_90a" ? &kH200 : nullptr;
}
