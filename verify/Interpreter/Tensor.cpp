//===- Tensor.cpp - tensors of the interpreter ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/Tensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

int64_t TensorRef::numElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

int64_t TensorRef::rowSize() const {
  int64_t count = 1;
  for (int64_t size : llvm::drop_begin(shape))
    count *= size;
  return count;
}

Tensor Tensor::undefined(DType dtype, ArrayRef<int64_t> shape) {
  Tensor result;
  result.type = dtype;
  result.dims.assign(shape.begin(), shape.end());
  result.bytes.assign(result.ref().numElements() * dtypeBits(dtype) / 8, 0xFF);
  return result;
}

TensorRef Tensor::ref() {
  TensorRef view;
  view.data = bytes.data();
  view.dtype = type;
  view.shape = dims;
  return view;
}

Result<DType> elementDType(ShapedType type) {
  Type element = type.getElementType();
  if (element.isF32())
    return DType::F32;
  if (element.isBF16())
    return DType::BF16;
  if (element.isF16())
    return DType::F16;
  if (isa<Float8E4M3FNType>(element))
    return DType::F8E4M3;
  if (isa<Float8E8M0FNUType>(element))
    return DType::F8E8M0;
  if (element.isInteger(8))
    return DType::I8;
  if (element.isInteger(16))
    return DType::I16;
  if (element.isInteger(32))
    return DType::I32;
  return invalidArgument(
      "the interpreter does not support elements of " + describe(type) +
      "; use f32, bf16, f16, f8E4M3FN, f8E8M0FNU, i8, i16 or i32");
}

std::string describe(ShapedType type) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << type.getElementType() << '[';
  llvm::interleave(
      type.getShape(), stream,
      [&](int64_t size) {
        if (ShapedType::isDynamic(size))
          stream << '?';
        else
          stream << size;
      },
      "x");
  stream << ']';
  return text;
}

std::string describe(const TensorRef &tensor) {
  std::string text = std::string(dtypeName(tensor.dtype)) + "[";
  llvm::raw_string_ostream stream(text);
  llvm::interleave(tensor.shape, stream, "x");
  stream << ']';
  return text;
}

bool matches(const TensorRef &tensor, ShapedType type) {
  Result<DType> dtype = elementDType(type);
  if (!dtype || *dtype != tensor.dtype ||
      static_cast<int64_t>(tensor.shape.size()) != type.getRank())
    return false;
  for (auto [size, expected] : llvm::zip(tensor.shape, type.getShape()))
    if (!ShapedType::isDynamic(expected) && size != expected)
      return false;
  return true;
}

//===----------------------------------------------------------------------===//
// Small floats
//===----------------------------------------------------------------------===//

static float fromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static uint32_t toBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static float fromBF16(uint16_t bits) { return fromBits(uint32_t(bits) << 16); }

static uint16_t toBF16(float value) {
  uint32_t bits = toBits(value);
  if (std::isnan(value))
    return (bits >> 16) | 0x40;
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

static float fromF16(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00)
    return fromBits(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  // Shifted fields have an exponent that is 112 too small, also for subnormals;
  // the multiplication by 2^112 is exact.
  return fromBits(sign | toBits(fromBits(magnitude << 13) * 0x1p112f));
}

static uint16_t toF16(float value) {
  uint16_t sign = (toBits(value) >> 16) & 0x8000;
  float magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7E00;
  // Half of the last step above the largest finite value, 65504.
  if (magnitude >= 65520.0f)
    return sign | 0x7C00;
  // Below 2^-14 all values are multiples of 2^-24: the sum's last bit.
  if (magnitude < 0x1p-14f)
    return sign | (toBits(magnitude + 0.5f) - toBits(0.5f));
  uint32_t bits = toBits(magnitude);
  bits += 0xFFF + ((bits >> 13) & 1);
  return sign | ((bits >> 13) - (112 << 10));
}

/// All values of e4m3.
static const std::array<float, 256> &getE4M3Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (unsigned bits = 0; bits < all.size(); ++bits)
      all[bits] =
          llvm::APFloat(llvm::APFloat::Float8E4M3FN(), llvm::APInt(8, bits))
              .convertToFloat();
    return all;
  }();
  return values;
}

static float fromE8M0(uint8_t bits) {
  constexpr uint8_t nan = 255;
  return bits == nan ? std::nanf("") : std::ldexp(1.0f, int(bits) - 127);
}

/// Rounds to nearest even, saturated to -127 and 127; NaN becomes 0.
static int8_t toI8(float value) {
  return std::isnan(value) ? 0
                           : std::clamp(std::nearbyint(value), -127.0f, 127.0f);
}

static uint8_t toE4M3(float value) {
  llvm::APFloat rounded(value);
  bool losesInfo;
  rounded.convert(llvm::APFloat::Float8E4M3FN(),
                  llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return rounded.bitcastToAPInt().getZExtValue();
}

template <typename T>
static void loadAs(const TensorRef &tensor, int64_t first,
                   MutableArrayRef<T> values) {
  switch (tensor.dtype) {
  case DType::F32:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = tensor.as<float>()[first + i];
    return;
  case DType::BF16:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = fromBF16(tensor.as<uint16_t>()[first + i]);
    return;
  case DType::F16:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = fromF16(tensor.as<uint16_t>()[first + i]);
    return;
  case DType::F8E4M3:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = getE4M3Values()[tensor.as<uint8_t>()[first + i]];
    return;
  case DType::F8E8M0:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = fromE8M0(tensor.as<uint8_t>()[first + i]);
    return;
  case DType::I8:
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = tensor.as<int8_t>()[first + i];
    return;
  default:
    llvm_unreachable("elementDType() admits no other that is read as a number");
  }
}

void load(const TensorRef &tensor, int64_t first,
          MutableArrayRef<float> values) {
  loadAs(tensor, first, values);
}

void load(const TensorRef &tensor, int64_t first,
          MutableArrayRef<double> values) {
  loadAs(tensor, first, values);
}

float loadAt(const TensorRef &tensor, int64_t index) {
  float value;
  load(tensor, index, MutableArrayRef<float>(value));
  return value;
}

void store(const TensorRef &tensor, int64_t first, ArrayRef<float> values) {
  switch (tensor.dtype) {
  case DType::F32:
    llvm::copy(values, tensor.as<float>() + first);
    return;
  case DType::BF16:
    for (size_t i = 0; i < values.size(); ++i)
      tensor.as<uint16_t>()[first + i] = toBF16(values[i]);
    return;
  case DType::F16:
    for (size_t i = 0; i < values.size(); ++i)
      tensor.as<uint16_t>()[first + i] = toF16(values[i]);
    return;
  case DType::F8E4M3:
    for (size_t i = 0; i < values.size(); ++i)
      tensor.as<uint8_t>()[first + i] = toE4M3(values[i]);
    return;
  case DType::I8:
    for (size_t i = 0; i < values.size(); ++i)
      tensor.as<int8_t>()[first + i] = toI8(values[i]);
    return;
  default:
    llvm_unreachable("nothing else is made of numbers");
  }
}

float roundTo(DType dtype, float value) {
  if (dtype == DType::BF16)
    return fromBF16(toBF16(value));
  if (dtype == DType::F16)
    return fromF16(toF16(value));
  if (dtype == DType::F8E4M3)
    return getE4M3Values()[toE4M3(value)];
  if (dtype == DType::I8)
    return toI8(value);
  return value;
}

} // namespace moec::interpreter
