//===- FloatState.cpp - a thread's floating-point state ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatState.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace moert {

#if defined(__SSE2__)

// <cfenv> would also save and restore the x87 unit, which takes a hundred
// cycles.
FloatState::FloatState() : saved(_mm_getcsr()) {
  // All exceptions masked, everything else 0.
  constexpr unsigned initial = 0x1f80;
  _mm_setcsr(initial);
}

FloatState::~FloatState() { _mm_setcsr(saved); }

#else

FloatState::FloatState() {
  std::fegetenv(&saved);
  std::fesetenv(FE_DFL_ENV);
}

FloatState::~FloatState() { std::fesetenv(&saved); }

#endif

} // namespace moert
