//===- ConvertElements.cpp - exact conversion of elements -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvertElements.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>
#include <limits>

using namespace moec;
using moert::DType;

namespace {

bool isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

bool isEightBit(DType dtype) {
  return dtype == DType::F8E4M3 || dtype == DType::F8E5M2 ||
         dtype == DType::F8E8M0;
}

const llvm::fltSemantics &getSemantics(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return llvm::APFloat::IEEEsingle();
  case DType::BF16:
    return llvm::APFloat::BFloat();
  case DType::F8E4M3:
    return llvm::APFloat::Float8E4M3FN();
  case DType::F8E5M2:
    return llvm::APFloat::Float8E5M2();
  case DType::F8E8M0:
    return llvm::APFloat::Float8E8M0FNU();
  default:
    return llvm::APFloat::IEEEhalf();
  }
}

llvm::APFloat readFloat(const uint8_t *source, DType dtype) {
  uint32_t bits = 0;
  unsigned width = unsigned(moert::dtypeBits(dtype));
  std::memcpy(&bits, source, width / 8);
  return {getSemantics(dtype), llvm::APInt(width, bits)};
}

int64_t readInteger(const uint8_t *source, DType dtype) {
  if (dtype == DType::I32) {
    int32_t value;
    std::memcpy(&value, source, sizeof(value));
    return value;
  }
  int64_t value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

} // namespace

/// Whether a file stores as plain bytes a type that the layer names.
static bool areBytes(DType from, DType to) {
  return from == DType::U8 && (to == DType::I8 || to == DType::F8E8M0);
}

bool moec::canConvert(DType from, DType to) {
  return from == to || areBytes(from, to) ||
         ((isFloat(from) || from == DType::F8E8M0) && isFloat(to)) ||
         (from == DType::I64 && to == DType::I32) ||
         (from == DType::I32 && to == DType::I64);
}

bool moec::convertElement(const uint8_t *source, DType from, uint8_t *result,
                          DType to) {
  if (areBytes(from, to)) {
    *result = *source;
    return true;
  }
  if (isFloat(from) || isEightBit(from)) {
    llvm::APFloat value = readFloat(source, from);
    // A NaN stays one, whatever its payload. The NaN of e8m0 has no payload,
    // and without one the bits in another type would be those of infinity.
    bool lost = false, isNaN = value.isNaN();
    value.convert(getSemantics(to), llvm::APFloat::rmNearestTiesToEven, &lost);
    if (isNaN && from == DType::F8E8M0)
      value = llvm::APFloat::getNaN(getSemantics(to));
    uint64_t bits = value.bitcastToAPInt().getZExtValue();
    std::memcpy(result, &bits, size_t(moert::dtypeBits(to)) / 8);
    return !lost || isNaN;
  }
  int64_t value = readInteger(source, from);
  std::memcpy(result, &value, size_t(moert::dtypeBits(to)) / 8);
  return to == DType::I64 || (value >= std::numeric_limits<int32_t>::min() &&
                              value <= std::numeric_limits<int32_t>::max());
}

bool moec::convertSplit(const uint8_t *source, DType from, uint8_t *result,
                        DType to, bool remainder) {
  constexpr auto nearest = llvm::APFloat::rmNearestTiesToEven;
  llvm::APFloat value = readFloat(source, from);
  bool lost = false;
  value.convert(getSemantics(DType::F32), nearest, &lost);
  llvm::APFloat rounded = value;
  rounded.convert(getSemantics(to), nearest, &lost);
  bool isInRange = rounded.isFinite();
  if (remainder && isInRange) {
    llvm::APFloat back = rounded;
    back.convert(getSemantics(DType::F32), nearest, &lost);
    value.subtract(back, nearest);
    rounded = value;
    rounded.convert(getSemantics(to), nearest, &lost);
  }
  uint64_t bits = rounded.bitcastToAPInt().getZExtValue();
  std::memcpy(result, &bits, size_t(moert::dtypeBits(to)) / 8);
  return isInRange;
}

bool moec::roundElement(const uint8_t *source, DType from, uint8_t *result,
                        DType to) {
  return isFloat(from) && isFloat(to) &&
         convertSplit(source, from, result, to, /*remainder=*/false);
}

std::string moec::showElement(const uint8_t *source, DType dtype) {
  if (isFloat(dtype) || isEightBit(dtype)) {
    llvm::SmallString<32> text;
    readFloat(source, dtype).toString(text);
    return text.str().str();
  }
  return std::to_string(readInteger(source, dtype));
}
