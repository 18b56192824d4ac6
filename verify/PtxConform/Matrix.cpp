//===- Matrix.cpp - matrix products and exact results -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Matrix.h"
#include "moec/PtxConform/Number.h"

#include <cmath>

namespace moec::conform {

const char *valuesName(Values values) {
  switch (values) {
  case Values::Integers:
    return "integers";
  case Values::Normal:
    return "normal";
  case Values::Wide:
    return "wide";
  case Values::Tiny:
    return "tiny";
  case Values::Special:
    return "special";
  }
  return "";
}

unsigned Product::perRegister() const { return 32 / formatWidth(a); }

unsigned Product::registersD() const {
  return m * n / (m == 64 ? 128 : 32) * formatWidth(d) / 32;
}

//===----------------------------------------------------------------------===//
// Fragments
//===----------------------------------------------------------------------===//

Place placeInA(const Product &product, unsigned lane, unsigned reg,
               unsigned part) {
  unsigned per = product.perRegister();
  return {lane / 4 + 8 * (reg & 1),
          lane % 4 * per + part + (reg >> 1) * 4 * per};
}

Place placeInB(const Product &product, unsigned lane, unsigned reg,
               unsigned part) {
  unsigned per = product.perRegister();
  return {lane % 4 * per + part + reg * 4 * per, lane / 4};
}

Place placeInD(unsigned lane, unsigned index) {
  return {lane / 4 + 8 * (index >> 1 & 1),
          index / 4 * 8 + lane % 4 * 2 + (index & 1)};
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// All mantissas; the lowest exponents of narrow formats, and for wide formats
/// exponents around the square root of the smallest number.
static uint32_t drawTiny(Format format, bool isC, Format factor,
                         Random &random) {
  FormatInfo info = formatInfo(format);
  bool isWide = formatInfo(factor).exponentBits == 8;
  uint64_t exponent = random.below(4);
  if (format == Format::F32 && isC)
    exponent = isWide ? random.below(24) : 80 + random.below(28);
  else if (isWide)
    exponent = 52 + random.below(22);
  uint64_t bits = random.bits() & ((1u << info.mantissaBits) - 1);
  return static_cast<uint32_t>(bits | exponent << info.mantissaBits |
                               random.below(2) << (info.bits - 1));
}

static uint32_t drawNumber(Format format, Values values, Random &random) {
  if (format == Format::S8)
    return static_cast<uint32_t>(random.bits() & 0xff);
  if (format == Format::S32)
    return static_cast<uint32_t>(random.between(-100000, 100000));
  switch (values) {
  case Values::Special:
    if (random.below(40) == 0) {
      const double special[] = {NAN, INFINITY, -INFINITY};
      bool hasInfinity = formatInfo(format).hasInfinity;
      return encode(format, special[hasInfinity ? random.below(3) : 0]);
    }
    [[fallthrough]];
  case Values::Integers:
    return encode(format, static_cast<double>(random.between(-4, 4)));
  case Values::Normal:
    return encode(format, random.normal());
  case Values::Wide:
    return encode(format, std::ldexp(random.normal(),
                                     static_cast<int>(random.between(-8, 4))));
  case Values::Tiny:
    // Drawn by drawTile, which knows the other operands.
    break;
  }
  return 0;
}

Tile drawTile(const Product &product, Values values, Random &random) {
  auto draw = [&](Format format, size_t count, bool isC) {
    std::vector<uint32_t> drawn(count);
    for (uint32_t &number : drawn)
      number = values == Values::Tiny ? drawTiny(format, isC, product.a, random)
                                      : drawNumber(format, values, random);
    return drawn;
  };
  Tile tile;
  tile.a = draw(product.a, product.m * product.k, /*isC=*/false);
  tile.b = draw(product.b, product.k * product.n, /*isC=*/false);
  tile.c = draw(product.d, product.m * product.n, /*isC=*/true);
  return tile;
}

//===----------------------------------------------------------------------===//
// Verdicts
//===----------------------------------------------------------------------===//

static bool isSame(double exact, double got) {
  return std::isnan(exact) ? std::isnan(got) : exact == got;
}

void judgeTile(const Product &product, const Tile &tile,
               const std::vector<uint32_t> &d, Verdict &verdict) {
  double sign = product.negatesA == product.negatesB ? 1 : -1;
  int smallestExponent =
      product.d == Format::S32 ? 0 : 1 - formatInfo(product.d).bias();
  for (unsigned row = 0; row < product.m; ++row)
    for (unsigned column = 0; column < product.n; ++column) {
      size_t at = row * product.n + column;
      // Products of these formats are exact in double, and the sum's error is
      // far below that of any D.
      double exact = product.ignoresC ? 0 : decode(product.d, tile.c[at]);
      double magnitude = std::fabs(exact);
      for (unsigned k = 0; k < product.k; ++k) {
        double term = sign * decode(product.a, tile.a[row * product.k + k]) *
                      decode(product.b, tile.b[k * product.n + column]);
        exact += term;
        magnitude += std::fabs(term);
      }
      double got = decode(product.d, d[at]);
      if (!std::isfinite(exact) || !std::isfinite(got)) {
        if (!isSame(exact, got) && verdict.failure.empty())
          verdict.failure = "D[" + std::to_string(row) + "][" +
                            std::to_string(column) +
                            "] = " + std::to_string(got) + ", " +
                            std::to_string(exact) + " expected";
        continue;
      }
      // Among subnormal numbers, errors are as large as among the smallest
      // normal ones.
      if (magnitude > 0)
        magnitude = std::fmax(magnitude, std::ldexp(1, smallestExponent));
      if (magnitude > 0)
        verdict.error =
            std::fmax(verdict.error, std::fabs(got - exact) / magnitude);
      else if (got != 0)
        verdict.failure = "D is not 0 where all terms are";
    }
}

double productBound(const Product &product, Values values) {
  if (values == Values::Integers || values == Values::Special)
    return 0;
  // Twice the measured error, rounded up to a power of two.
  if (product.d == Format::F16)
    return std::ldexp(1, -10);
  // wgmma keeps 14 bits in fp8 sums; mma.sync converts fp8 to f16 first.
  bool isNarrow = formatWidth(product.a) == 8 && product.m == 64;
  return std::ldexp(1, isNarrow ? -9 : -21);
}

} // namespace moec::conform
