//===- Memory.h - memory regions with bounds --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_MACHINE_MEMORY_H
#define MOEC_VERIFY_PTXSIM_MACHINE_MEMORY_H

#include "Shadow.h"

namespace moec::ptx {

/// One allocation, or the shared memory of a CTA.
class Region {
public:
  Region(std::string name, uint64_t address, uint64_t size, bool isShared)
      : name(std::move(name)), address(address), size(size),
        data(size ? new uint8_t[size] : nullptr), shadow(size, isShared) {
    forget();
  }

  bool contains(uint64_t at, uint64_t bytes) const {
    return at - address < size && size - (at - address) >= bytes;
  }
  uint8_t *at(uint64_t where) { return data.get() + (where - address); }

  /// Marks all bytes uninitialized, and fills them with conspicuous values.
  void forget();
  /// Cheaper forget() for memory that was not accessed since.
  void renew();
  bool isInitialized(uint64_t at, uint64_t bytes) const;
  /// One flag per byte: 1 if initialized.
  void copyInitialized(uint8_t *flags, uint64_t at, uint64_t bytes) const;
  void markInitialized(uint64_t at, uint64_t bytes);
  void markUninitialized(uint64_t at, uint64_t bytes);

  const std::string name;
  const uint64_t address, size;

private:
  const std::unique_ptr<uint8_t[]> data;
  /// One flag per byte; empty if all bytes are initialized.
  std::vector<uint8_t> initialized;
  /// Bytes outside of this range were never marked.
  uint64_t firstMarked = size, endMarked = 0;

public:
  Shadow shadow;
};

/// Global memory, with addresses unrelated to the host's.
class GlobalMemory {
public:
  /// Null if memory is exhausted. `alignment` is a power of two.
  Region *allocate(const std::string &name, uint64_t bytes, uint64_t alignment);
  /// False if no region begins at `address`.
  bool release(uint64_t address);

  /// The region that contains the address, or ends shortly before it; null if
  /// there is none. `hint` speeds up the next search.
  Region *find(uint64_t address, uint32_t &hint) const;
  Region *find(uint64_t address) const {
    uint32_t hint = 0;
    return find(address, hint);
  }

private:
  /// Ascending by address.
  std::vector<std::unique_ptr<Region>> regions;
  uint64_t top = kFirstAddress;

  static constexpr uint64_t kFirstAddress = 0x7000'0000'0000;
  /// Unallocated bytes between regions.
  static constexpr uint64_t kGap = 4096;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_MACHINE_MEMORY_H
