//===- ReadBytes.h - the bytes of a file ------------------------*- C++ -*-===//
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

/// The largest record of measurements that is read.
constexpr uint64_t kMaxRecordBytes = uint64_t(64) << 20;

/// The bytes of a regular file or of standard input ("-"), `maxBytes` at most.
/// The error does not name the file.
llvm::Expected<std::string> readBytes(llvm::StringRef path, uint64_t maxBytes);

} // namespace moec

#endif // MOEC_SUPPORT_READBYTES_H
