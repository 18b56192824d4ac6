//===- CtaOrder.h - CTAs in an order that spreads them ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_CTAORDER_H
#define MOEC_SCHEDULES_CTAORDER_H

#include <cstdint>

namespace moec {

/// Factor of a CTA swizzle that spreads consecutive work over a GPU.
///
/// With one CTA per SM, neighbours in the grid share a TPC (a pair of SMs), and
/// the next 16 or 18 share a GPC; each of these has a bandwidth of its own.
/// Work for only some of `ctas` CTAs should use all TPCs and GPCs.
///
/// A CTA's index in the swizzled order is its number times this factor, modulo
/// `ctas` (at least 1). The factor is prime to `ctas`. Neighbours are about
/// half of all indices apart, and any consecutive indices belong to evenly
/// spread CTAs.
int64_t getCtaFactor(int64_t ctas);

} // namespace moec

#endif // MOEC_SCHEDULES_CTAORDER_H
