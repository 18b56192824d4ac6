//===- PtxasSeconds.cpp - what a kernel takes ptxas -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxasSeconds.h"

#include "moec/Schedules/PtxasLimits.h"
#include "moec/Target/NVPTX.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

using namespace moec;
using namespace moec::test;

/// A kernel that does not depend on the compiler: FMAs of 48 registers.
static std::string makeYardstick() {
  constexpr int registers = 48, lines = 4000;
  auto name = [](int i) { return "%f" + std::to_string(i % registers); };
  std::string ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                    ".visible .entry yardstick(.param .u64 p) {\n"
                    ".reg .f32 %f<48>;\n.reg .b64 %p;\n"
                    "ld.param.u64 %p, [p];\n";
  for (int i = 0; i < registers; ++i)
    ptx += "ld.global.f32 " + name(i) + ", [%p + " + std::to_string(4 * i) +
           "];\n";
  for (int i = 0; i < lines; ++i)
    ptx += "fma.rn.f32 " + name(i) + ", " + name(7 * i) + ", " + name(11 * i) +
           ", " + name(13 * i) + ";\n";
  for (int i = 0; i < registers; ++i)
    ptx += "st.global.f32 [%p + " + std::to_string(4 * i) + "], " + name(i) +
           ";\n";
  return ptx + "ret;\n}\n";
}

/// The least of several runs, since other work on the core and its caches adds
/// time.
static double getLeast(const std::string &ptx, const std::string &chip) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    auto assembled = assemble(ptx, chip);
    EXPECT_TRUE(bool(assembled)) << llvm::toString(assembled.takeError());
    if (assembled)
      least = std::min(least, assembled->cpuSeconds);
  }
  return least;
}

double test::getPtxasSeconds(const std::string &ptx, const std::string &chip,
                             double first) {
  // A change is tested beside other work, which slows a large kernel more than
  // the yardstick. Then only twice the limit is too long.
  const double allowance = std::getenv("MOEC_ALL_CASES") ? 1 : 2;
  if (first < allowance * ptxas::kMaxSeconds)
    return first / allowance;
  // Free cores of today take 0.27 to 0.4, shared ones more.
  constexpr double yardstickSeconds = 0.27;
  double slowness = getLeast(makeYardstick(), "sm_90a") / yardstickSeconds;
  return std::min(first, getLeast(ptx, chip)) /
         (allowance * std::max(1.0, slowness));
}
