//===- ReadBytes.h - reads a file into memory -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_READBYTES_H
#define MOEC_SUPPORT_READBYTES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>

namespace moec {

/// Largest record of measurements that may be read.
constexpr uint64_t kMaxRecordBytes = uint64_t(64) << 20;

/// Reads a regular file or standard input ("-"), at most `maxBytes` bytes. The
/// error does not name the file.
llvm::Expected<std::string> readBytes(llvm::StringRef path, uint64_t maxBytes);

} // namespace moec

#endif // MOEC_SUPPORT_READBYTES_H
