//===- CtaOrder.h - CTAs in an order that spreads them ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_CTAORDER_H
#define MOEC_ANALYSIS_CTAORDER_H

#include <cstdint>

namespace moec {

/// A GPU that runs one CTA per multiprocessor gives neighbours in the grid to
/// one TPC (a pair of multiprocessors), and the next 16 or 18 to one GPC, and
/// each of these has a bandwidth of its own. Where there is work for some of
/// `ctas` CTAs alone, those shall be of all TPCs and GPCs.
///
/// The place of a CTA in an order that does so is its number times this factor,
/// modulo `ctas` (at least 1): a number prime to `ctas`. Neighbours get places
/// about half of all apart, and any places that follow one another are those
/// of CTAs that are evenly spread.
int64_t getCtaFactor(int64_t ctas);

} // namespace moec

#endif // MOEC_ANALYSIS_CTAORDER_H
