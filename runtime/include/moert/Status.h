//===- Status.h - how the runtime reports failure ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_STATUS_H
#define MOERT_STATUS_H

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace moert {

enum class StatusCode {
  Ok,
  InvalidArgument,
  NotFound,
  OutOfRange,
  ResourceExhausted,
  Unavailable,
  Internal,
};

/// The name used in messages and logs: "invalid_argument" and so on.
const char *statusCodeName(StatusCode code);

/// Success, or a code and a message. A message names the call or the field, the
/// tensor, what was expected and found, and what to change.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : statusCode(code), text(std::move(message)) {
    assert(code != StatusCode::Ok && "a failure has a code other than Ok");
  }

  static Status ok() { return Status(); }

  bool isOk() const { return statusCode == StatusCode::Ok; }
  explicit operator bool() const { return isOk(); }
  StatusCode code() const { return statusCode; }
  const std::string &message() const { return text; }

  /// Prepends `context` and ": " to a failure; success stays success.
  Status withContext(const std::string &context) const;

  /// "invalid_argument: message", or "ok".
  std::string toString() const;

private:
  StatusCode statusCode = StatusCode::Ok;
  std::string text;
};

Status invalidArgument(std::string message);
Status notFound(std::string message);
Status outOfRange(std::string message);
Status resourceExhausted(std::string message);
Status unavailable(std::string message);
Status internalError(std::string message);

/// A value, or the status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
public:
  Result(T value) : held(std::move(value)) {}
  Result(Status failure) : failed(std::move(failure)) {
    assert(!failed.isOk() && "a result without a value needs a failure");
  }

  bool isOk() const { return held.has_value(); }
  explicit operator bool() const { return isOk(); }
  const Status &status() const & { return failed; }
  Status status() && { return std::move(failed); }

  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T &&operator*() && { return std::move(value()); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }

private:
  T &value() {
    assert(held && "the value of a failed result was asked for");
    return *held;
  }
  const T &value() const {
    assert(held && "the value of a failed result was asked for");
    return *held;
  }

  std::optional<T> held;
  Status failed;
};

} // namespace moert

#endif // MOERT_STATUS_H
