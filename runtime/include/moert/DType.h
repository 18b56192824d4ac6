//===- DType.h - element types of tensors -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_DTYPE_H
#define MOERT_DTYPE_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace moert {

enum class DType : uint8_t {
  F64,
  F32,
  BF16,
  F16,
  F8E4M3,
  F8E5M2,
  F8E8M0,
  F4E2M1,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  Bool,
};

/// The last element type, for loops over all of them.
inline constexpr DType kLastDType = DType::Bool;

/// The name in specs and messages: "f32", "bf16", "f8e4m3", ...
const char *dtypeName(DType dtype);

/// The name in a safetensors header: "F32", "BF16", "F8_E4M3", "F4", ...
const char *safetensorsName(DType dtype);

std::optional<DType> parseDType(std::string_view name);
std::optional<DType> parseSafetensorsDType(std::string_view name);

/// Bits of one element. Tensors are packed: elements of four bits share bytes.
int64_t dtypeBits(DType dtype);

/// Minimum alignment of a tensor of this type, in bytes.
int64_t dtypeAlignment(DType dtype);

} // namespace moert

#endif // MOERT_DTYPE_H
