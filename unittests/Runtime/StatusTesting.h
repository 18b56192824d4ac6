//===- StatusTesting.h - statuses of the C API in tests ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_STATUSTESTING_H
#define MOEC_UNITTESTS_RUNTIME_STATUSTESTING_H

#include "moert/moert.h"

#include <string>

namespace moert::test {

/// Frees a status and returns its message; "" for success.
inline std::string take(moert_status *status) {
  std::string message = moert_status_message(status);
  moert_status_free(status);
  return message;
}

} // namespace moert::test

#define ASSERT_DONE(call) ASSERT_EQ(moert::test::take(call), "")

#endif // MOEC_UNITTESTS_RUNTIME_STATUSTESTING_H
