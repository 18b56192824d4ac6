//===- GpuInstructions.h - sizes that instructions of GPUs fix --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes that the PTX ISA fixes, for schedules, their code and the passes that
// prepare it. They are equal on all targets that have the instructions.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_GPUINSTRUCTIONS_H
#define MOEC_SUPPORT_GPUINSTRUCTIONS_H

#include <cstdint>

namespace moec {

/// Threads of a warp, and of the four warps that issue a wgmma.
inline constexpr int64_t kWarp = 32, kWarpgroup = 128;

/// Maximum static shared memory of a CTA, in bytes.
inline constexpr int64_t kStaticSharedBytes = 48 * 1024;

/// Matrix descriptors of wgmma and tcgen05.mma: unit of addresses and strides,
/// in bytes.
inline constexpr int64_t kDescriptorUnit = 16;
/// Bytes of a row of the widest swizzle.
inline constexpr int64_t kSwizzleBytes = 128;

/// wgmma: rows on the M side, and bytes of K.
inline constexpr int64_t kWgmmaRows = 64, kWgmmaBytes = 32;

} // namespace moec

#endif // MOEC_SUPPORT_GPUINSTRUCTIONS_H
