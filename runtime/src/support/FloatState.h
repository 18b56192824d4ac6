//===- FloatState.h - rounding and flushing of a thread ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_FLOATSTATE_H
#define MOERT_SRC_SUPPORT_FLOATSTATE_H

#if !defined(__SSE2__)
#include <cfenv>
#endif

namespace moert {

/// Gives the calling thread the floating-point state that a process starts
/// with, for as long as the object lives: round to nearest, keep subnormal
/// numbers, raise no signals. The caller's state comes back afterwards, its
/// exception flags too. A library may have set flush-to-zero or another
/// rounding in the thread that calls, and threads inherit the state of the
/// thread that makes them.
class FloatState {
public:
  // Not inline: no arithmetic moves across the calls.
  FloatState();
  ~FloatState();
  FloatState(const FloatState &) = delete;
  FloatState &operator=(const FloatState &) = delete;

private:
#if defined(__SSE2__)
  unsigned saved;
#else
  std::fenv_t saved;
#endif
};

} // namespace moert

#endif // MOERT_SRC_SUPPORT_FLOATSTATE_H
