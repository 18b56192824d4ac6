//===- CtaOrderTest.cpp - CTAs in an order that spreads them ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/CtaOrder.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <set>
#include <vector>

using namespace moec;

namespace {

/// CTAs by their position in the order.
std::vector<int64_t> getOrder(int64_t ctas) {
  std::vector<int64_t> order(ctas, -1);
  for (int64_t cta = 0; cta < ctas; ++cta)
    order[cta * getCtaFactor(ctas) % ctas] = cta;
  return order;
}

TEST(CtaOrderTest, EachPlaceIsOfOneCta) {
  for (int64_t ctas = 1; ctas <= 200; ++ctas) {
    std::vector<int64_t> order = getOrder(ctas);
    std::set<int64_t> all(order.begin(), order.end());
    EXPECT_EQ(int64_t(all.size()), ctas);
    EXPECT_EQ(*all.begin(), 0) << ctas;
  }
}

TEST(CtaOrderTest, NeighboursAreFarApart) {
  // CTAs of an H100 PCIe, an H100 or H200, a B200 and an A100.
  for (int64_t ctas : {114, 132, 148, 108})
    EXPECT_GE(getCtaFactor(ctas), ctas / 3) << ctas;
}

TEST(CtaOrderTest, PlacesInARowAreOfAllGpcs) {
  // The number of adjacent CTAs on one GPC.
  constexpr int64_t ctas = 132, gpc = 16;
  std::vector<int64_t> order = getOrder(ctas);
  for (int64_t count : {16, 28, 40, 64, 80, 96})
    for (int64_t first = 0; first < ctas; ++first) {
      std::vector<int64_t> shares(ctas / gpc + 1);
      for (int64_t i = 0; i < count; ++i)
        ++shares[order[(first + i) % ctas] / gpc];
      int64_t even = (count * gpc + ctas - 1) / ctas;
      EXPECT_LE(*llvm::max_element(shares), even + 2)
          << count << " from " << first;
    }
}

} // namespace
