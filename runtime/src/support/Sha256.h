//===- Sha256.h - SHA-256 ---------------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_SHA256_H
#define MOERT_SRC_SUPPORT_SHA256_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace moert {

using Sha256Digest = std::array<uint8_t, 32>;

/// SHA-256 (FIPS 180-4) of `size` bytes. Uses the processor's SHA instructions
/// if it has them and `mayUseInstructions` is set.
Sha256Digest sha256(const void *data, size_t size,
                    bool mayUseInstructions = true);

/// 64 hexadecimal digits.
std::string showDigest(const Sha256Digest &digest);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_SHA256_H
