//===- CApi.h - internals of the compiler's C API ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_JIT_CAPI_H
#define MOEC_LIB_JIT_CAPI_H

#include "ArgumentNames.h"

#include "../../runtime/src/CApi.h"
#include "../../runtime/src/support/FloatState.h"
#include "moec/Jit/Jit.h"
#include "moejit/moejit.h"

struct moejit_compiler {
  explicit moejit_compiler(moec::JitOptions options)
      : jit(std::move(options)) {}

  moec::Jit jit;
  moejit_message_fn message = nullptr;
  void *user = nullptr;
};

namespace moec::capi {

/// Returns a status to a caller of C, in whose terms the message is.
inline moert_status *answer(const moert::Status &status,
                            LayerArgument layer = LayerArgument::Source) {
  if (status)
    return nullptr;
  return new moert_status{
      moert::Status(status.code(), nameForC(status.message(), layer))};
}

inline moert::Status missing(const char *call, const char *argument) {
  return moert::invalidArgument(std::string(call) + ": the argument '" +
                                argument + "' is NULL");
}

template <typename T>
moert::Status checkSize(const T &given, const char *what) {
  if (given.size == sizeof(T))
    return moert::Status::ok();
  return moert::invalidArgument(
      std::string(what) + ".size is " + std::to_string(given.size) +
      "; sizeof(" + what + ") is " + std::to_string(sizeof(T)) +
      ", so compile against the header of this library");
}

/// Calls `message`, which may be NULL, with the progress `done` of `all`.
inline void tellStep(moejit_message_fn message, void *user, size_t done,
                     size_t all) {
  if (message)
    message(user, MOEJIT_STEP,
            (std::to_string(done) + "/" + std::to_string(all)).c_str());
}

/// Checks and reads the source of `call`; stores its overrides in `overrides`.
moert::Result<SourceText> readText(const char *call,
                                   const moejit_source &source,
                                   SpecOverrides &overrides);

} // namespace moec::capi

/// Returns an error unless `argument` is set.
#define MOEJIT_NEEDED(argument)                                                \
  if (!(argument))                                                             \
  return moec::capi::answer(moec::capi::missing(__func__, #argument))

#endif // MOEC_LIB_JIT_CAPI_H
