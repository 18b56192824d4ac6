//===- Random.cpp - random bytes of the system ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Random.h"

#include <cerrno>
#include <cstring>

#include <sys/random.h>

namespace moert {

Status drawRandom(void *bytes, size_t size) {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size))
    return unavailable("the system gives no random bytes: " +
                       std::string(strerror(errno)));
  return Status::ok();
}

} // namespace moert
