//===- TextEncoding.h - detects texts that are not UTF-8 --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_TEXTENCODING_H
#define MOERT_TEXTENCODING_H

#include <cstddef>

namespace moert {

/// An error message with a remedy for a text in an encoding other than UTF-8,
/// or with a byte order mark, such as Windows editors and shells write; null
/// for any other text.
const char *explainEncoding(const char *text, size_t bytes);

} // namespace moert

#endif // MOERT_TEXTENCODING_H
