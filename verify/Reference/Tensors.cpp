//===- Tensors.cpp - what the reference reads -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Tensors.h"

#include "../../runtime/src/support/Threads.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

using namespace moec;
using namespace moec::reference;

Source::~Source() = default;

namespace {

double decodeF32(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

double decodeF16(uint16_t bits) {
  int exponent = bits >> 10 & 0x1F;
  double mantissa = bits & 0x3FF;
  double size = exponent == 0x1F
                    ? (mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                                     : std::numeric_limits<double>::infinity())
                : exponent == 0 ? std::ldexp(mantissa, -24)
                                : std::ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

double decodeE4M3(uint8_t bits) {
  int exponent = bits >> 3 & 0xF;
  double mantissa = bits & 7;
  double size = (bits & 0x7F) == 0x7F ? std::numeric_limits<double>::quiet_NaN()
                : exponent == 0       ? std::ldexp(mantissa, -9)
                                      : std::ldexp(mantissa + 8, exponent - 10);
  return bits & 0x80 ? -size : size;
}

double decodeE8M0(uint8_t bits) {
  return bits == 0xFF ? std::numeric_limits<double>::quiet_NaN()
                      : std::ldexp(1.0, bits - 127);
}

/// The values of all bytes.
std::array<double, 256> decodeAll(double (*decode)(uint8_t)) {
  std::array<double, 256> values;
  for (size_t bits = 0; bits < values.size(); ++bits)
    values[bits] = decode(static_cast<uint8_t>(bits));
  return values;
}

class MemorySource : public Source {
public:
  MemorySource(const void *data, moert::DType dtype)
      : data(data), dtype(dtype) {}

  void read(int64_t first, int64_t count, double *to) const override {
    switch (dtype) {
    case moert::DType::F32:
      std::copy_n(static_cast<const float *>(data) + first, count, to);
      return;
    case moert::DType::I32:
      std::copy_n(static_cast<const int32_t *>(data) + first, count, to);
      return;
    case moert::DType::I16:
      std::copy_n(static_cast<const int16_t *>(data) + first, count, to);
      return;
    case moert::DType::BF16:
      std::transform(halves() + first, halves() + first + count, to,
                     [](uint16_t x) { return decodeF32(uint32_t(x) << 16); });
      return;
    case moert::DType::F16:
      std::transform(halves() + first, halves() + first + count, to, decodeF16);
      return;
    case moert::DType::F8E4M3: {
      const auto *bytes = static_cast<const uint8_t *>(data) + first;
      static const std::array<double, 256> values = decodeAll(decodeE4M3);
      std::transform(bytes, bytes + count, to,
                     [](uint8_t bits) { return values[bits]; });
      return;
    }
    case moert::DType::F8E8M0: {
      const auto *bytes = static_cast<const uint8_t *>(data) + first;
      static const std::array<double, 256> values = decodeAll(decodeE8M0);
      std::transform(bytes, bytes + count, to,
                     [](uint8_t bits) { return values[bits]; });
      return;
    }
    case moert::DType::I8:
      std::copy_n(static_cast<const int8_t *>(data) + first, count, to);
      return;
    case moert::DType::U8:
      std::copy_n(static_cast<const uint8_t *>(data) + first, count, to);
      return;
    default:
      llvm_unreachable("layers have no tensors of other types");
    }
  }

private:
  const uint16_t *halves() const { return static_cast<const uint16_t *>(data); }

  const void *data;
  moert::DType dtype;
};

class RandomSource : public Source {
public:
  explicit RandomSource(const RandomTensor &tensor) : tensor(tensor) {}
  void read(int64_t first, int64_t count, double *to) const override {
    tensor.read(first, count, to);
  }

private:
  RandomTensor tensor;
};

/// Rounds to `precision` bits; the smallest normal number is 2^minExponent.
double roundToPrecision(double value, int precision, int minExponent) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent;
  std::frexp(value, &exponent);
  int quantum = std::max(exponent - precision, minExponent + 1 - precision);
  double rounded =
      std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  // Both formats have the exponents 1 - maxExponent .. maxExponent.
  double limit = std::ldexp(1.0, 2 - minExponent);
  return std::fabs(rounded) < limit
             ? rounded
             : std::copysign(std::numeric_limits<double>::infinity(), value);
}

} // namespace

std::unique_ptr<Source> moec::reference::makeSource(const void *data,
                                                    moert::DType dtype) {
  return std::make_unique<MemorySource>(data, dtype);
}

std::unique_ptr<Source>
moec::reference::makeSource(const RandomTensor &tensor) {
  return std::make_unique<RandomSource>(tensor);
}

std::vector<double> Call::read(const std::string &name, int64_t first,
                               int64_t count) const {
  std::vector<double> values(count);
  get(name).read(first, count, values.data());
  return values;
}

int64_t Call::getNumValid() const {
  if (!spec.numValidTokens)
    return tokens;
  double given = read("num_valid_tokens", 0, 1)[0];
  return std::clamp<int64_t>(static_cast<int64_t>(given), 0, tokens);
}

std::vector<bool> Call::getPresent() const {
  std::vector<bool> present(tokens);
  std::fill_n(present.begin(), getNumValid(), true);
  if (spec.paddingMask)
    for (auto [i, flag] : llvm::enumerate(read("is_padding", 0, tokens)))
      present[i] = present[i] && flag == 0;
  return present;
}

moert::DType moec::reference::getRuntimeType(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return moert::DType::F32;
  case DType::BF16:
    return moert::DType::BF16;
  case DType::F16:
    return moert::DType::F16;
  }
  llvm_unreachable("every dtype is listed");
}

double moec::reference::roundTo(double value, DType dtype) {
  switch (dtype) {
  case DType::F32:
    return static_cast<float>(value);
  case DType::BF16:
    return roundToPrecision(value, 8, -126);
  case DType::F16:
    return roundToPrecision(value, 11, -14);
  }
  llvm_unreachable("every dtype is listed");
}

void moec::reference::parallelFor(int threads, int64_t count,
                                  const std::function<void(int64_t)> &body) {
  if (threads <= 0)
    threads = static_cast<int>(moert::countProcessors());
  std::atomic<int64_t> next{0};
  moert::shareWork(static_cast<size_t>(std::min<int64_t>(threads, count)), [&] {
    for (int64_t i = next++; i < count; i = next++)
      body(i);
  });
}

Matrix::Matrix(int64_t rows, int64_t columns)
    : rows(rows), columns(columns), stride((columns + 7) / 8 * 8),
      values((rows + 3) / 4 * 4 * stride) {}
