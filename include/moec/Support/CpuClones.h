//===- CpuClones.h - a loop compiled for several CPUs -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_CPUCLONES_H
#define MOEC_SUPPORT_CPUCLONES_H

/// Marks a function to be inlined into its callers and compiled for their CPU.
#define MOEC_INLINE __attribute__((always_inline)) inline

/// Defines `static void name parameters`, which calls the MOEC_INLINE function
/// `body` with `arguments`. It is compiled three times (x86-64, AVX2 and
/// AVX-512), and the CPU selects one at run time. `body` may use kVectorBytes,
/// the size of a vector, as a template argument. `target_clones` would do the
/// same, but its resolvers run before sanitizers are initialized.
#define MOEC_CPU_CLONE(name, attribute, bytes, body, parameters, arguments)    \
  attribute static void name parameters {                                      \
    [[maybe_unused]] constexpr int kVectorBytes = bytes;                       \
    body arguments;                                                            \
  }
#if defined(__x86_64__)
#define MOEC_CPU_CLONES(name, body, parameters, arguments)                     \
  MOEC_CPU_CLONE(name##V4, __attribute__((target("arch=x86-64-v4"))), 64,      \
                 body, parameters, arguments)                                  \
  MOEC_CPU_CLONE(name##V3, __attribute__((target("arch=x86-64-v3"))), 32,      \
                 body, parameters, arguments)                                  \
  MOEC_CPU_CLONE(name##V1, , 16, body, parameters, arguments)                  \
  static void name parameters {                                                \
    if (__builtin_cpu_supports("x86-64-v4"))                                   \
      name##V4 arguments;                                                      \
    else if (__builtin_cpu_supports("x86-64-v3"))                              \
      name##V3 arguments;                                                      \
    else                                                                       \
      name##V1 arguments;                                                      \
  }
#else
#define MOEC_CPU_CLONES(name, body, parameters, arguments)                     \
  MOEC_CPU_CLONE(name, , 16, body, parameters, arguments)
#endif

#endif // MOEC_SUPPORT_CPUCLONES_H
