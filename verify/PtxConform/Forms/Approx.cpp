//===- Approx.cpp - approximations with an error bound ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"
#include "moec/PtxConform/Number.h"

#include <cmath>

namespace moec::conform {

namespace {

enum class Unit : uint8_t {
  Ulps,
  Relative,
  Absolute,
  /// For lg2: absolute between 0.5 and 2, relative elsewhere.
  Logarithmic,
};

struct Approximation {
  double (*exact)(double x, double y) = nullptr;
  Unit unit = Unit::Relative;
  double bound = 0;
  Format format = Format::F32;
  /// Subnormal operands and results count as zero.
  bool flushes = false;
  /// Whether the PTX ISA bounds the error for these operands.
  bool (*hasBound)(double x, double y) = nullptr;
};

const char *unitName(Unit unit) {
  switch (unit) {
  case Unit::Ulps:
    return "ulp";
  case Unit::Relative:
    return "relative";
  case Unit::Absolute:
    return "absolute";
  case Unit::Logarithmic:
    return "absolute in (0.5, 2), else relative";
  }
  return "";
}

double smallestNormal(Format format) {
  return std::ldexp(1, 1 - formatInfo(format).bias());
}

double ulp(Format format, double value) {
  FormatInfo info = formatInfo(format);
  int exponent = value == 0 ? 1 - info.bias() : std::ilogb(value);
  return std::ldexp(1, std::max(exponent, 1 - info.bias()) -
                           static_cast<int>(info.mantissaBits));
}

std::string hex(uint32_t bits) {
  char text[16];
  snprintf(text, sizeof(text), "0x%x", bits);
  return text;
}

class Judge {
public:
  Judge(const Approximation &about, size_t inputs)
      : about(about), numInputs(inputs) {}

  Verdict operator()(const Buffers &before, const Buffers &after) const {
    Verdict verdict;
    const Bytes &results = after[numInputs];
    size_t count = results.size() * 8 / formatWidth(about.format);
    for (size_t i = 0; i < count && verdict.failure.empty(); ++i) {
      uint32_t x = loadNumber(about.format, before[0], i);
      uint32_t y = numInputs > 1 ? loadNumber(about.format, before[1], i) : 0;
      uint32_t got = loadNumber(about.format, results, i);
      double error = errorOf(operand(x), operand(y), got);
      if (error < 0)
        verdict.failure = "f(" + hex(x) + (numInputs > 1 ? ", " + hex(y) : "") +
                          ") = " + hex(got) + ", " +
                          std::to_string(about.exact(operand(x), operand(y))) +
                          " expected";
      verdict.error = std::fmax(verdict.error, error);
    }
    return verdict;
  }

private:
  double operand(uint32_t bits) const {
    double value = decode(about.format, bits);
    if (about.flushes && std::fabs(value) < smallestNormal(about.format))
      return std::copysign(0.0, value);
    return value;
  }

  /// Negative if no error is acceptable.
  double errorOf(double x, double y, uint32_t bits) const {
    if (about.hasBound && !about.hasBound(x, y))
      return 0;
    double exact = about.exact(x, y);
    double got = decode(about.format, bits);
    if (std::isnan(exact) || std::isnan(got))
      return std::isnan(exact) && std::isnan(got) ? 0 : -1;
    if (std::isinf(exact))
      return exact == got ? 0 : -1;
    double largest = (2 - ulp(about.format, 1.0)) *
                     std::ldexp(1, formatInfo(about.format).bias());
    if (std::isinf(got))
      return exact * (got > 0 ? 1 : -1) > largest * (1 - 1e-3) ? 0 : -1;
    if (about.flushes && got == 0 &&
        std::fabs(exact) <= smallestNormal(about.format))
      return 0;
    double difference = std::fabs(got - exact);
    double scale = std::fmax(std::fabs(exact), smallestNormal(about.format));
    switch (about.unit) {
    case Unit::Ulps:
      return difference / ulp(about.format, exact);
    case Unit::Relative:
      return difference / scale;
    case Unit::Absolute:
      return difference;
    case Unit::Logarithmic:
      return x > 0.5 && x < 2 ? difference : difference / scale;
    }
    return -1;
  }

  const Approximation about;
  const size_t numInputs;
};

void add(Family &family, const std::string &name, const Operand &value,
         size_t inputs, Approximation about) {
  about.format = value.format;
  about.flushes |= name.find(".ftz") != std::string::npos;
  Form &form = family.op(name, {value}, std::vector(inputs, value));
  form.rule = Rule::Bound;
  form.bound = about.bound;
  form.unit = unitName(about.unit);
  form.judge = Judge(about, inputs);
}

double reciprocal(double x, double) { return 1 / x; }
double squareRoot(double x, double) { return std::sqrt(x); }
double inverseRoot(double x, double) { return 1 / std::sqrt(x); }
double power(double x, double) { return std::exp2(x); }
double logarithm(double x, double) { return std::log2(x); }
double tangent(double x, double) { return std::tanh(x); }
double quotient(double x, double y) { return x / y; }
bool isModerate(double, double y) {
  return std::fabs(y) >= std::ldexp(1, -126) &&
         std::fabs(y) <= std::ldexp(1, 126);
}

} // namespace

void addApprox(Forms &forms) {
  Family family("approx", forms);
  const double ulp23 = std::ldexp(1, -23);
  for (const char *mode : {".approx.f32", ".approx.ftz.f32"}) {
    auto name = [&](const char *base) { return std::string(base) + mode; };
    add(family, name("rcp"), F32, 1, {reciprocal, Unit::Ulps, 1});
    add(family, name("sqrt"), F32, 1, {squareRoot, Unit::Relative, ulp23});
    add(family, name("rsqrt"), F32, 1,
        {inverseRoot, Unit::Relative, std::exp2(-22.9)});
    add(family, name("ex2"), F32.as(Draw::Exponents), 1,
        {power, Unit::Ulps, 2});
    add(family, name("lg2"), F32, 1,
        {logarithm, Unit::Logarithmic, std::ldexp(1, -22)});
    Approximation division = {quotient, Unit::Ulps, 2};
    division.hasBound = isModerate;
    add(family, name("div"), F32, 2, division);
  }
  add(family, "div.full.f32", F32, 2, {quotient, Unit::Ulps, 2});
  add(family, "div.full.ftz.f32", F32, 2, {quotient, Unit::Ulps, 2});
  add(family, "tanh.approx.f32", F32, 1,
      {tangent, Unit::Relative, std::ldexp(1, -11)});
  // Packed forms are judged element by element.
  for (const Operand &value : {F16, F16X2}) {
    std::string type = value.width == 16 ? "f16" : "f16x2";
    add(family, "ex2.approx." + type, value.as(Draw::Exponents), 1,
        {power, Unit::Relative, std::exp2(-9.9)});
    add(family, "tanh.approx." + type, value, 1,
        {tangent, Unit::Absolute, std::exp2(-10.987)});
  }
  for (const Operand &value : {BF16, BF16X2}) {
    std::string type = value.width == 16 ? "bf16" : "bf16x2";
    add(family, "ex2.approx.ftz." + type, value.as(Draw::Exponents), 1,
        {power, Unit::Relative, std::ldexp(1, -7)});
    add(family, "tanh.approx." + type, value, 1,
        {tangent, Unit::Absolute, std::ldexp(1, -8)});
  }
}

} // namespace moec::conform
