//===- CpuClones.h - a loop compiled for several CPUs -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_CPUCLONES_H
#define MOEC_SUPPORT_CPUCLONES_H

/// Marks a function whose code becomes part of its callers, for their CPU.
#define MOEC_INLINE __attribute__((always_inline)) inline

/// Defines `static void name parameters` that calls the MOEC_INLINE function
/// `body` with `arguments`, compiled three times (for any x86-64, AVX2 and
/// AVX-512); the CPU at hand decides which of them runs. Functions chosen by
/// the loader (target_clones) would do the same, but run before sanitizers do.
#if defined(__x86_64__)
#define MOEC_CPU_CLONES(name, body, parameters, arguments)                     \
  __attribute__((target("arch=x86-64-v4"))) static void name##V4 parameters {  \
    body arguments;                                                            \
  }                                                                            \
  __attribute__((target("arch=x86-64-v3"))) static void name##V3 parameters {  \
    body arguments;                                                            \
  }                                                                            \
  static void name parameters {                                                \
    if (__builtin_cpu_supports("x86-64-v4"))                                   \
      return name##V4 arguments;                                               \
    if (__builtin_cpu_supports("x86-64-v3"))                                   \
      return name##V3 arguments;                                               \
    body arguments;                                                            \
  }
#else
#define MOEC_CPU_CLONES(name, body, parameters, arguments)                     \
  static void name parameters { body arguments; }
#endif

#endif // MOEC_SUPPORT_CPUCLONES_H
