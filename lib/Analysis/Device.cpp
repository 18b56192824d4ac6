//===- Device.cpp - rates of a GPU, measured --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3). Fitted: to layers of four models with 1 to 16384
/// tokens (benchmarks/results/gpu_layer_h200.json). Assumed: from the sizes of
/// the machine, until somebody measures it.
static constexpr DeviceRates kH200 = {
    "H200",
    /*multiprocessors=*/132,
    /*readBytes=*/4.54e12,       // B/s, measured: 4.39 to 4.54
    /*bf16Operations=*/799e12,   // 1/s, measured: 785 to 799, cool
    /*fp8Operations=*/1491e12,   // 1/s, measured, cool
    /*copyBytes=*/3.7e12,        // B/s, assumed: 0.85 of a copy's 4.3
    /*streamShare=*/0.98,        // measured: 0.97 to 0.99 of readBytes
    /*smReadBytes=*/72e9,        // B/s, measured: 64 and fewer with work, T = 1
    /*latencyUs=*/1.0,           // us, assumed: 0.8 to 1.2
    /*unevenShare=*/0.05,        // assumed
    /*l2BytesPerClk=*/6100,      // B/clk, measured on other kernels
    /*smL2BytesPerClk=*/64,      // B/clk, by design
    /*l2KeptBytes=*/36e6,        // B, assumed: of 60 MB in two halves
    /*tensorClock=*/1.60e9,      // Hz, under load
    /*operationsPerClk=*/4096,   // 1/clk, by design
    /*tensorShare=*/0.85,        // measured: dense pairs hold 644 to 694 T/s
    /*productClk=*/20,           // clk, assumed: 2 KiB at 128 B/clk, and issue
    /*sharedBytesPerClk=*/128,   // B/clk, by design
    /*stepClk=*/90,              // clk, assumed
    /*itemClk=*/2000,            // clk, fitted to layers
    /*epilogueLinesPerClk=*/128, // 1/clk, by design: four schedulers
    /*epilogueExposed=*/1.3,     // fitted to layers: stalls
    /*gatherShare=*/0.03,        // measured on other kernels: 3 to 6 %
    /*promotionExposed=*/0.3,    // assumed
    /*launchUs=*/0.9,            // us, fitted to layers of 1 token
    /*prologueUs=*/0.5,          // us, the same
    /*firstBytesUs=*/0.6,        // us, the same
    /*drainUs=*/0.4,             // us, the same
    /*overlapOrder=*/6,          // fitted to layers
};

const DeviceRates *moec::getDeviceRates(const Target &target) {
  return target.name == "sm_90a" ? &kH200 : nullptr;
}
