//===- Library.h - NCCL, opened at run time ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_NCCL_LIBRARY_H
#define MOERT_SRC_COMM_NCCL_LIBRARY_H

#include "Api.h"
#include "moert/Status.h"

#include <memory>
#include <string>

namespace moert::nccl {

/// The oldest accepted version. 2.18 introduced ncclCommSplit, but its release
/// notes list hangs and wrong sums of all-reduces on H100.
constexpr int kOldestVersion = 21900;

/// NCCL's functions, `library.ncclAllGather(...)` and so on. The library is
/// never closed, since it has threads of its own.
class Library {
public:
  /// Opens `path`; if empty, the library named by the environment variable
  /// MOERT_NCCL_LIBRARY, else libnccl.so.2, which is the copy that the process
  /// has already loaded, if any. Returns `unavailable` if there is none, or if
  /// it is too old or lacks a function.
  ///
  /// NVLink multicast stays off: sets NCCL_NVLS_ENABLE=0 in the environment if
  /// it is unset, and refuses any other value.
  static Result<std::shared_ptr<const Library>> open(const std::string &path);

  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  /// "NCCL 2.28.9 (/usr/lib/libnccl.so.2)".
  const std::string &name() const { return theName; }

  /// Success, or NCCL's text for `code` with the name of the `call`, and what
  /// to do about it. `comm` may be null.
  Status check(ncclResult_t code, const char *call, ncclComm_t comm) const;

#define NCCL_SYMBOL(name, version, parameters)                                 \
  ncclResult_t(*name) parameters = nullptr;
#define NCCL_TEXT_SYMBOL(name, version, parameters)                            \
  const char *(*name)parameters = nullptr;
#include "Symbols.def"

private:
  explicit Library(void *library) : library(library) {}

  Status findSymbols(const std::string &opened);

  void *const library;
  std::string theName;
};

} // namespace moert::nccl

#endif // MOERT_SRC_COMM_NCCL_LIBRARY_H
