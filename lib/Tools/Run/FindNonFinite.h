//===- FindNonFinite.h - finds NaN and infinity -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_FINDNONFINITE_H
#define MOEC_LIB_TOOLS_RUN_FINDNONFINITE_H

#include "moert/DType.h"

#include <cstdint>

namespace moec {

/// The index of the first element that is NaN or infinite; -1 if there is none,
/// and for types without such elements.
int64_t findNonFinite(const uint8_t *elements, moert::DType dtype,
                      int64_t count);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_FINDNONFINITE_H
