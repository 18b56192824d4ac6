//===- Status.cpp - how the runtime reports failure -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Status.h"

namespace moert {

const char *statusCodeName(StatusCode code) {
  switch (code) {
  case StatusCode::Ok:
    return "ok";
  case StatusCode::InvalidArgument:
    return "invalid_argument";
  case StatusCode::NotFound:
    return "not_found";
  case StatusCode::OutOfRange:
    return "out_of_range";
  case StatusCode::ResourceExhausted:
    return "resource_exhausted";
  case StatusCode::Unavailable:
    return "unavailable";
  case StatusCode::Internal:
    return "internal";
  }
  return "unknown";
}

Status Status::withContext(const std::string &context) const {
  if (isOk())
    return *this;
  return Status(statusCode, context + ": " + text);
}

std::string Status::toString() const {
  if (isOk())
    return "ok";
  return std::string(statusCodeName(statusCode)) + ": " + text;
}

Status invalidArgument(std::string message) {
  return Status(StatusCode::InvalidArgument, std::move(message));
}
Status notFound(std::string message) {
  return Status(StatusCode::NotFound, std::move(message));
}
Status outOfRange(std::string message) {
  return Status(StatusCode::OutOfRange, std::move(message));
}
Status resourceExhausted(std::string message) {
  return Status(StatusCode::ResourceExhausted, std::move(message));
}
Status unavailable(std::string message) {
  return Status(StatusCode::Unavailable, std::move(message));
}
Status internalError(std::string message) {
  return Status(StatusCode::Internal, std::move(message));
}

} // namespace moert
