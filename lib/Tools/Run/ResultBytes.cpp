//===- ResultBytes.cpp - serializes a run's results -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Both ends of the pipe are the same program, so the same functions write and
// read the bytes and state their format once.

#include "ResultBytes.h"

#include <cstring>

using namespace moec;
using moert::Status;

namespace {

class Bytes {
public:
  /// For writing.
  Bytes() = default;
  /// For reading.
  explicit Bytes(const std::string &from) : bytes(from), reads(true) {}

  template <typename T>
  void number(T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    block(&value, sizeof(value));
  }
  void block(void *data, size_t size) {
    if (!reads) {
      bytes.append(static_cast<const char *>(data), size);
    } else if (isWhole && bytes.size() - at >= size) {
      std::memcpy(data, bytes.data() + at, size);
      at += size;
    } else {
      isWhole = false;
    }
  }
  /// Writes or reads the number of following elements, each of at least one
  /// byte.
  size_t count(size_t number) {
    uint64_t value = number;
    this->number(value);
    if (!reads)
      return number;
    isWhole = isWhole && value <= bytes.size() - at;
    return isWhole ? size_t(value) : 0;
  }
  void text(std::string &value) {
    value.resize(count(value.size()));
    block(value.data(), value.size());
  }
  template <typename T, typename Each>
  void list(std::vector<T> &values, Each each) {
    values.resize(count(values.size()));
    for (T &value : values)
      each(value);
  }
  template <typename T>
  void numbers(std::vector<T> &values) {
    list(values, [&](T &value) { number(value); });
  }

  /// `isFine`: no read has gone past the end. `hasAll`: moreover, all bytes are
  /// read.
  bool isFine() const { return isWhole; }
  bool hasAll() const { return isWhole && (!reads || at == bytes.size()); }
  bool isReading() const { return reads; }
  const std::string &get() const { return bytes; }

private:
  std::string bytes;
  size_t at = 0;
  bool reads = false, isWhole = true;
};

void pass(Bytes &bytes, HostTensor &tensor) {
  bytes.text(tensor.name);
  bytes.number(tensor.role);
  bytes.number(tensor.dtype);
  bytes.numbers(tensor.shape);
  if (bytes.isReading() && (!bytes.isFine() || !tensor.allocate()))
    return;
  bytes.block(tensor.data(), tensor.getNumBytes());
}

void pass(Bytes &bytes, RunResult &result) {
  pass(bytes, result.output);
  bytes.numbers(result.seconds);
  bytes.list(result.parts, [&](PartTimes &part) {
    bytes.number(part.tokens);
    bytes.text(part.part);
    bytes.numbers(part.seconds);
  });
  bytes.list(result.traces, [&](std::vector<moert::TracedStep> &trace) {
    bytes.list(trace, [&](moert::TracedStep &step) {
      bytes.text(step.name);
      bytes.number(step.stream);
      bytes.number(step.begin);
      bytes.number(step.end);
    });
  });
}

} // namespace

std::string moec::packResult(moert::Result<RunResult> &result) {
  Bytes bytes;
  moert::StatusCode code = result.status().code();
  std::string message = result.status().message();
  bytes.number(code);
  bytes.text(message);
  if (result)
    pass(bytes, *result);
  return bytes.get();
}

moert::Result<RunResult> moec::unpackResult(const std::string &from) {
  Bytes bytes(from);
  moert::StatusCode code = moert::StatusCode::Internal;
  std::string message;
  bytes.number(code);
  bytes.text(message);
  if (bytes.isReading() && code != moert::StatusCode::Ok)
    return Status(code, message);
  RunResult result;
  pass(bytes, result);
  if (!bytes.hasAll())
    return moert::internalError("a rank's result is incomplete");
  return result;
}
