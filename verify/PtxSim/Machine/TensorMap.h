//===- TensorMap.h - tensor maps of the simulator ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_MACHINE_TENSORMAP_H
#define MOEC_VERIFY_PTXSIM_MACHINE_TENSORMAP_H

#include <cstdint>

namespace moec::ptx {

inline constexpr unsigned kMaxRank = 5;

/// The simulator's contents of a 128-byte tensor map; the hardware's format is
/// undocumented. Dimension 0 is the innermost.
struct TensorMapBits {
  static constexpr uint32_t kMagic = 0x70614D54;

  uint32_t magic = kMagic;
  uint8_t rank = 0, elementBytes = 0;
  uint16_t swizzleBytes = 0;
  uint64_t address = 0;
  uint32_t sizes[kMaxRank] = {};
  uint16_t box[kMaxRank] = {};
  uint64_t strides[kMaxRank - 1] = {};
  uint8_t unused[46] = {};
};

static_assert(sizeof(TensorMapBits) == 128, "the size of a tensor map");

/// The shared memory address to which swizzling moves the byte at `address`.
inline uint64_t swizzleAddress(uint64_t address, unsigned swizzleBytes) {
  unsigned mask = swizzleBytes == 128  ? 7
                  : swizzleBytes == 64 ? 3
                  : swizzleBytes == 32 ? 1
                                       : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_MACHINE_TENSORMAP_H
