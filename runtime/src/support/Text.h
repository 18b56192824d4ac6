//===- Text.h - values in messages ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_TEXT_H
#define MOERT_SRC_SUPPORT_TEXT_H

#include <cstdint>
#include <string>
#include <vector>

namespace moert {

/// "[2, 3]"
inline std::string listText(const std::vector<int64_t> &values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

} // namespace moert

#endif // MOERT_SRC_SUPPORT_TEXT_H
