//===- Device.cpp - rates of a GPU, measured --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3). Fitted: to 267 times of products of bf16, from 1 to
/// 16384 tokens, in tiles of 31 shapes
/// (benchmarks/results/sm90_tiles_h200.json; 4.5 % off, root mean square).
/// Assumed: until somebody measures it.
static constexpr DeviceRates kH200 = {
    "H200",
    /*multiprocessors=*/132,
    /*readBytes=*/4.54e12,       // B/s, measured: 4.39 to 4.54
    /*bf16Operations=*/799e12,   // 1/s, measured: 785 to 799, cool
    /*fp8Operations=*/1491e12,   // 1/s, measured, cool
    /*copyBytes=*/3.7e12,        // B/s, assumed: 0.85 of a copy's 4.3
    /*streamShare=*/0.965,       // fitted
    /*smReadBytes=*/81e9,        // B/s, fitted
    /*latencyUs=*/0.74,          // us, fitted
    /*stagesRead=*/1.6,          // fitted
    /*unevenShare=*/0.13,        // fitted
    /*l2BytesPerClk=*/6300,      // B/clk, fitted; others measured 6100
    /*smL2BytesPerClk=*/64,      // B/clk, by design
    /*l2KeptBytes=*/36e6,        // B, assumed: of 60 MB in two halves
    /*l2AheadBytes=*/25.2e6,     // B, assumed: 0.7 of what is kept
    /*tensorClock=*/1.60e9,      // Hz, under load
    /*operationsPerClk=*/4096,   // 1/clk, by design
    /*tensorShare=*/0.81,        // fitted; dense products hold 0.75 to 0.80
    /*productClk=*/17,           // clk, fitted: 2 KiB at 128 B/clk, and issue
    /*sharedBytesPerClk=*/128,   // B/clk, by design
    /*stepClk=*/180,             // clk, fitted
    /*itemClk=*/1100,            // clk, fitted
    /*epilogueLinesPerClk=*/128, // 1/clk, by design: four schedulers
    /*epilogueExposed=*/1.6,     // fitted: instructions wait for each other
    /*gatherShare=*/0.026,       // fitted
    /*gatherL2Share=*/0.2,       // fitted
    /*bodiesShare=*/0.015,       // fitted
    /*unevenDeviations=*/2.0,    // fitted
    /*promotionExposed=*/0.3,    // assumed
    /*launchUs=*/1.2,            // us, fitted: 3.0 together with
    /*prologueUs=*/0.7,          // us
    /*firstBytesUs=*/0.7,        // us
    /*drainUs=*/0.4,             // us
    /*overlapOrder=*/5.5,        // fitted
};

const DeviceRates *moec::getDeviceRates(const Target &target) {
  return target.name == "sm_90a" ? &kH200 : nullptr;
}
