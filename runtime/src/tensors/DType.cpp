//===- DType.cpp - element types of tensors ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/DType.h"

#include <iterator>

namespace moert {

namespace {
struct DTypeInfo {
  DType dtype;
  const char *name;
  const char *safetensors;
  int64_t bits;
};
} // namespace

/// Indexed by the enumeration.
static constexpr DTypeInfo kInfos[] = {
    {DType::F64, "f64", "F64", 64},
    {DType::F32, "f32", "F32", 32},
    {DType::BF16, "bf16", "BF16", 16},
    {DType::F16, "f16", "F16", 16},
    {DType::F8E4M3, "f8e4m3", "F8_E4M3", 8},
    {DType::F8E5M2, "f8e5m2", "F8_E5M2", 8},
    {DType::F8E8M0, "f8e8m0", "F8_E8M0", 8},
    {DType::F4E2M1, "f4e2m1", "F4", 4},
    {DType::I64, "i64", "I64", 64},
    {DType::I32, "i32", "I32", 32},
    {DType::I16, "i16", "I16", 16},
    {DType::I8, "i8", "I8", 8},
    {DType::U64, "u64", "U64", 64},
    {DType::U32, "u32", "U32", 32},
    {DType::U16, "u16", "U16", 16},
    {DType::U8, "u8", "U8", 8},
    {DType::Bool, "bool", "BOOL", 8},
};

static constexpr bool inOrder() {
  for (size_t i = 0; i < std::size(kInfos); ++i)
    if (static_cast<size_t>(kInfos[i].dtype) != i)
      return false;
  return std::size(kInfos) == static_cast<size_t>(kLastDType) + 1;
}
static_assert(inOrder(), "kInfos is indexed by the enumeration");

static const DTypeInfo &info(DType dtype) {
  return kInfos[static_cast<size_t>(dtype)];
}

const char *dtypeName(DType dtype) { return info(dtype).name; }

const char *safetensorsName(DType dtype) { return info(dtype).safetensors; }

std::optional<DType> parseDType(std::string_view name) {
  for (const DTypeInfo &candidate : kInfos)
    if (name == candidate.name)
      return candidate.dtype;
  return std::nullopt;
}

std::optional<DType> parseSafetensorsDType(std::string_view name) {
  for (const DTypeInfo &candidate : kInfos)
    if (name == candidate.safetensors)
      return candidate.dtype;
  return std::nullopt;
}

int64_t dtypeBits(DType dtype) { return info(dtype).bits; }

int64_t dtypeAlignment(DType dtype) {
  int64_t bytes = info(dtype).bits / 8;
  return bytes > 0 ? bytes : 1;
}

} // namespace moert
