//===- FloatState.h - a thread's floating-point state -----------*- C++ -*-===//
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

/// Sets the calling thread's floating-point state to that of a new process for
/// the object's lifetime: round to nearest, keep subnormal numbers, raise no
/// signals. Then restores the previous state and exception flags. Needed since
/// a library may have set flush-to-zero or another rounding in the calling
/// thread, and threads inherit the state of their creator.
class FloatState {
public:
  // Not inline, so that no arithmetic moves across the calls.
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
