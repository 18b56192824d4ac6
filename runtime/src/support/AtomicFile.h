//===- AtomicFile.h - writes files whole or not at all ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_ATOMICFILE_H
#define MOERT_SRC_SUPPORT_ATOMICFILE_H

#include "moert/Status.h"

#include <cstddef>
#include <string>
#include <vector>

namespace moert {

struct FilePart {
  const void *data = nullptr;
  size_t bytes = 0;
};

/// Writes the parts, one after the other, to a temporary file beside `path` and
/// renames it into place: a failure leaves an old file as it was. Refuses to
/// replace what is not a regular file.
Status writeFileWhole(const std::string &path,
                      const std::vector<FilePart> &parts);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_ATOMICFILE_H
