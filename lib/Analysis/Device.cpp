//===- Device.cpp - rates of a GPU, measured --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Device.h"

using namespace moec;

/// An H200 with SXM socket. Measured: by reading 8 GiB, by dense products of
/// 8192^3 (bf16 and e4m3), by replaying layers (benchmarks/results). Assumed:
/// from the sizes of the machine, until somebody measures it.
static constexpr DeviceRates kH200 = {
    "H200",
    /*multiprocessors=*/132,
    /*readBytes=*/4.54e12,       // B/s, measured: 4.39 to 4.54
    /*bf16Operations=*/799e12,   // 1/s, measured: 785 to 799, cool
    /*fp8Operations=*/1491e12,   // 1/s, measured, cool
    /*streamShare=*/0.98,        // measured: 0.97 to 0.99 of readBytes
    /*smReadBytes=*/72e9,        // B/s, assumed: 63 of 132 fill the bus
    /*l2BytesPerClk=*/6100,      // B/clk, measured on other kernels
    /*l2KeptBytes=*/36e6,        // B, assumed: of 60 MB in two halves
    /*tensorClock=*/1.60e9,      // Hz, under load
    /*memoryClock=*/1.75e9,      // Hz, under load
    /*operationsPerClk=*/4096,   // 1/clk, by design
    /*tensorShare=*/0.83,        // measured: dense pairs hold 644 to 694 T/s
    /*productClk=*/20,           // clk, assumed: 2 KiB at 128 B/clk, and issue
    /*sharedBytesPerClk=*/128,   // B/clk, by design
    /*stepClk=*/90,              // clk, assumed
    /*itemClk=*/400,             // clk, assumed
    /*epilogueLinesPerClk=*/128, // 1/clk, by design: four schedulers
    /*epilogueExposed=*/0.5,     // assumed
    /*gatherShare=*/0.03,        // measured on other kernels: 3 to 6 %
    /*promotionExposed=*/0.3,    // assumed
    /*launchUs=*/2.5,            // us, assumed
    /*prologueUs=*/1.0,          // us, assumed
    /*firstBytesUs=*/0.9,        // us, assumed
    /*drainUs=*/0.8,             // us, assumed
    /*overlapOrder=*/4,          // assumed
};

const DeviceRates *moec::getDeviceRates(const Target &target) {
  return target.name == "sm_90a" ? &kH200 : nullptr;
}
