//===- MappedFile.h - a file mapped into memory -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_MAPPEDFILE_H
#define MOERT_SRC_SUPPORT_MAPPEDFILE_H

#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace moert {

/// A regular file, mapped for reading. Unused pages are never read.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  /// Null for an empty file.
  const uint8_t *data() const {
    return static_cast<const uint8_t *>(mapping.get());
  }
  size_t bytes() const { return size; }

  /// Shares ownership of the mapping.
  std::shared_ptr<const void> share() const { return mapping; }

private:
  std::shared_ptr<const void> mapping;
  size_t size = 0;
};

} // namespace moert

#endif // MOERT_SRC_SUPPORT_MAPPEDFILE_H
