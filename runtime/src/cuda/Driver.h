//===- Driver.h - the CUDA driver, opened at run time -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CUDA_DRIVER_H
#define MOERT_SRC_CUDA_DRIVER_H

#include "Api.h"
#include "moert/Status.h"

#include <memory>
#include <string>

namespace moert::cuda {

/// The driver's functions, `driver.cuMemAlloc(...)` and so on. The library is
/// never closed, since the driver has threads of its own.
class Driver {
public:
  /// Opens `path`; if empty, the library named by the environment variable
  /// MOERT_CUDA_LIBRARY, else libcuda.so.1, else libcuda.so. Returns
  /// `unavailable` if there is none or it lacks a function.
  static Result<std::shared_ptr<const Driver>> open(const std::string &path);

  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;

  /// Success, or the driver's text for `code` with the name of the `call`, and
  /// what to do about it.
  Status check(CUresult code, const char *call) const;

// NOLINTBEGIN(bugprone-macro-parentheses): these are a name and a type.
#define CUDA_SYMBOL(name, exported, version, parameters)                       \
  CUresult(*name) parameters = nullptr;
#include "Symbols.def"
  // NOLINTEND(bugprone-macro-parentheses)

private:
  Driver(void *library, std::string path)
      : library(library), path(std::move(path)) {}

  using GetProcAddress = CUresult (*)(const char *, void **, int, uint64_t,
                                      int *);
  using OldGetProcAddress = CUresult (*)(const char *, void **, int, uint64_t);

  Status findSymbols();
  void *find(const char *name, const char *exported, int version) const;

  void *const library;
  const std::string path;
  GetProcAddress getProcAddress = nullptr;
  OldGetProcAddress oldGetProcAddress = nullptr;
};

} // namespace moert::cuda

/// Returns from the enclosing function unless the driver's `call` succeeds:
/// MOERT_CUDA(driver, cuInit, (0)).
#define MOERT_CUDA(driver, call, arguments)                                    \
  do {                                                                         \
    ::moert::cuda::CUresult code = (driver).call arguments;                    \
    if (code != ::moert::cuda::CUDA_SUCCESS)                                   \
      return (driver).check(code, #call);                                      \
  } while (false)

#endif // MOERT_SRC_CUDA_DRIVER_H
