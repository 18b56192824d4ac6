//===- TextEncoding.h - texts that are not plain UTF-8 ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_TEXTENCODING_H
#define MOERT_TEXTENCODING_H

#include <cstddef>

namespace moert {

/// An error message with the remedy for a text in another encoding than UTF-8,
/// or with a byte order mark; null for any other text. Editors and shells of
/// Windows write such files.
const char *explainEncoding(const char *text, size_t bytes);

} // namespace moert

#endif // MOERT_TEXTENCODING_H
