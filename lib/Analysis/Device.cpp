//===- Device.cpp - rates of a GPU, measured --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3). Fitted: to 223 times of products of bf16 in tiles of
/// one height, from 1 to 16384 tokens (benchmarks/results/sm90_tiles_h200.json;
/// 4.1 % off, root mean square), and to 48 of whole layers under load with such
/// or about equal tiles (2.6 % off). Assumed: until somebody measures it.
static constexpr DeviceRates kH200 = {
    "H200",
    /*multiprocessors=*/132,
    /*readBytes=*/4.54e12,       // B/s, measured: 4.39 to 4.54
    /*bf16Operations=*/799e12,   // 1/s, measured: 785 to 799, cool
    /*fp8Operations=*/1491e12,   // 1/s, measured, cool
    /*copyBytes=*/3.7e12,        // B/s, assumed: 0.85 of a copy's 4.3
    /*streamShare=*/0.973,       // fitted
    /*smReadBytes=*/80.4e9,      // B/s, fitted
    /*latencyUs=*/0.644,         // us, fitted
    /*stagesRead=*/1.92,         // fitted
    /*unevenShare=*/0.127,       // fitted
    /*l2BytesPerClk=*/5180,      // B/clk, fitted; others measured 6100
    /*smL2BytesPerClk=*/64,      // B/clk, by design
    /*l2KeptBytes=*/36e6,        // B, assumed: of 60 MB in two halves
    /*power=*/570,               // W, assumed: 700 by design, 130 idle
    /*readEnergy=*/84e-12,       // J/B, fitted
    /*l2Energy=*/14e-12,         // J/B, fitted
    /*bf16Energy=*/0.38e-12,     // J, fitted
    /*fp8Energy=*/0.19e-12,      // J, assumed: half of that
    /*tensorClock=*/1.755e9,     // Hz, assumed: of 1.98, a little warm
    /*operationsPerClk=*/4096,   // 1/clk, by design
    /*tensorShare=*/0.754,       // fitted
    /*productClk=*/17,           // clk, fitted: 2 KiB at 128 B/clk, and issue
    /*sharedBytesPerClk=*/128,   // B/clk, by design
    /*stepClk=*/248,             // clk, fitted
    /*itemClk=*/518,             // clk, fitted
    /*epilogueLinesPerClk=*/128, // 1/clk, by design: four schedulers
    /*epilogueExposed=*/2.29,    // fitted: instructions wait for each other
    /*gatherShare=*/0.042,       // fitted
    /*gatherL2Share=*/0.227,     // fitted
    /*bodiesShare=*/0.015,       // assumed
    /*unevenDeviations=*/2.0,    // assumed
    /*promotionExposed=*/0.3,    // assumed
    /*launchUs=*/1.2,            // us, fitted: 3.0 together with
    /*prologueUs=*/0.7,          // us
    /*firstBytesUs=*/0.7,        // us
    /*drainUs=*/0.4,             // us
    /*overlapOrder=*/9.0,        // fitted
};

const DeviceRates *moec::getDeviceRates(const Target &target) {
  return target.name == "sm_90a" ? &kH200 : nullptr;
}
