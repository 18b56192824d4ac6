//===- Lanes.h - one function on 32 lanes -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_NUMBERS_LANES_H
#define MOEC_VERIFY_PTXSIM_NUMBERS_LANES_H

#include "../Machine/Machine.h"

#include <cstring>

namespace moec::ptx {

template <typename To, typename From>
inline To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// A result's register equals a source or does not overlap it, so loops over
// lanes can be vectorized.
#if defined(__clang__)
#define PTXSIM_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PTXSIM_VECTORIZE _Pragma("GCC ivdep")
#endif

/// Applies `F::apply` to the sources of each lane; operand 0 is the result.
/// Inactive lanes are computed as well, and dropped.
template <typename F, typename D, typename A>
Step unary(Warp &warp, const Instruction &instruction, LaneMask mask) {
  D *d = warp.lanes<D>(instruction.operands[0]);
  const A *a = warp.lanes<A>(instruction.operands[1]);
  if (mask == kAllLanes) {
    PTXSIM_VECTORIZE
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      d[lane] = F::apply(a[lane]);
    return Step::Next;
  }
  PTXSIM_VECTORIZE
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    D result = F::apply(a[lane]);
    d[lane] = mask >> lane & 1 ? result : d[lane];
  }
  return Step::Next;
}

template <typename F, typename D, typename A, typename B>
Step binary(Warp &warp, const Instruction &instruction, LaneMask mask) {
  D *d = warp.lanes<D>(instruction.operands[0]);
  const A *a = warp.lanes<A>(instruction.operands[1]);
  const B *b = warp.lanes<B>(instruction.operands[2]);
  if (mask == kAllLanes) {
    PTXSIM_VECTORIZE
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      d[lane] = F::apply(a[lane], b[lane]);
    return Step::Next;
  }
  PTXSIM_VECTORIZE
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    D result = F::apply(a[lane], b[lane]);
    d[lane] = mask >> lane & 1 ? result : d[lane];
  }
  return Step::Next;
}

template <typename F, typename D, typename A, typename B, typename C>
Step ternary(Warp &warp, const Instruction &instruction, LaneMask mask) {
  D *d = warp.lanes<D>(instruction.operands[0]);
  const A *a = warp.lanes<A>(instruction.operands[1]);
  const B *b = warp.lanes<B>(instruction.operands[2]);
  const C *c = warp.lanes<C>(instruction.operands[3]);
  if (mask == kAllLanes) {
    PTXSIM_VECTORIZE
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      d[lane] = F::apply(a[lane], b[lane], c[lane]);
    return Step::Next;
  }
  PTXSIM_VECTORIZE
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    D result = F::apply(a[lane], b[lane], c[lane]);
    d[lane] = mask >> lane & 1 ? result : d[lane];
  }
  return Step::Next;
}

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_NUMBERS_LANES_H
