//===- TryStatus.h - returns early on failure -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_TRYSTATUS_H
#define MOEC_LIB_TOOLS_BENCH_TRYSTATUS_H

#include "moert/Status.h"

/// Returns the status of the expression from the function if it is a failure.
#define MOEC_TRY(expression)                                                   \
  do {                                                                         \
    if (::moert::Status failed_ = (expression); !failed_)                      \
      return failed_;                                                          \
  } while (false)

/// Returns the status of a failed result from the function; otherwise moves its
/// value to `target`.
#define MOEC_TRY_ASSIGN(target, expression)                                    \
  do {                                                                         \
    auto result_ = (expression);                                               \
    if (!result_)                                                              \
      return result_.status();                                                 \
    target = std::move(*result_);                                              \
  } while (false)

#endif // MOEC_LIB_TOOLS_BENCH_TRYSTATUS_H
