//===- Descriptor.h - owns a file descriptor --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_DESCRIPTOR_H
#define MOERT_SRC_SUPPORT_DESCRIPTOR_H

#include <utility>

#include <unistd.h>

namespace moert {

/// Owns a file descriptor or socket and closes it; -1 for none.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  Descriptor(Descriptor &&other) noexcept
      : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }

  explicit operator bool() const { return number >= 0; }
  int get() const { return number; }
  int release() { return std::exchange(number, -1); }
  /// Closes it now, to get the result of close().
  int close() { return ::close(std::exchange(number, -1)); }

private:
  int number;
};

} // namespace moert

#endif // MOERT_SRC_SUPPORT_DESCRIPTOR_H
