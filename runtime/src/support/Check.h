//===- Check.h - returns the first failure ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_CHECK_H
#define MOERT_SRC_SUPPORT_CHECK_H

#include "moert/Status.h"

/// Returns the status from the enclosing function unless it is ok.
#define MOERT_CHECK(status)                                                    \
  if (::moert::Status checked = (status); !checked)                            \
  return checked

#endif // MOERT_SRC_SUPPORT_CHECK_H
