//===- Compare.cpp - whether an output agrees -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::reference;

double moec::reference::getErrorBound(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return 1e-5;
  case DType::BF16:
    return 3e-3;
  case DType::F16:
    return 1e-3;
  }
  llvm_unreachable("every dtype is listed");
}

/// Whether a gemm quantizes its input.
static bool quantizesActivations(const LayerSpec &spec) {
  return llvm::any_of(spec.getExpertWeights(), [&](llvm::StringRef weight) {
    const auto &quantization = spec.getQuantization(weight);
    return quantization && quantization->activation;
  });
}

/// Whether a weight times its scale, or an entry of nf4's code book, may be
/// rounded to 16 bits.
static bool mayRoundWeights(const LayerSpec &spec) {
  return llvm::any_of(spec.getExpertWeights(), [&](llvm::StringRef name) {
    const auto &quantization = spec.getQuantization(name);
    if (!quantization)
      return false;
    const OperandQuantization &weight = quantization->weight;
    return weight.storage == StorageType::NF4 ||
           ((weight.granularity == Granularity::Group ||
             weight.granularity == Granularity::Block) &&
            weight.storage != StorageType::Fp4E2M1 &&
            weight.scale != ScaleType::E8M0);
  });
}

namespace {

/// The bound on the error over the whole output, and the factor for a row.
struct Bounds {
  double whole, rowFactor = kRowFactor;
};

} // namespace

static Bounds getBounds(const LayerSpec &spec) {
  // A sum with a small error may round to the next quantized value, up to an
  // eighth away, and a whole row may depend on one element.
  constexpr double quantized = 2e-2, nextCode = 1.0 / 8;
  if (quantizesActivations(spec))
    return {quantized, nextCode / quantized};
  if (spec.dtype != DType::BF16)
    return {getErrorBound(spec.dtype)};
  // sm_90a rounds weights of both gemms, which changes the roundings between
  // them and of the output: four times 2^-9. Reductions over ranks round each
  // summand, too.
  constexpr double rounded = 8e-3;
  bool addsOverRanks = spec.parallel && spec.parallel->getNumRanks() > 1;
  if (mayRoundWeights(spec) || addsOverRanks)
    return {rounded};
  // With adapters, rows times first matrices may be rounded, too, where second
  // matrices have the type of the weights. A row is off by at most 1e-2.
  constexpr double adapted = 6e-3, adaptedRow = 1e-2;
  if (spec.lora && !spec.isQuantized())
    return {adapted, adaptedRow / adapted};
  return {getErrorBound(spec.dtype)};
}

double moec::reference::getErrorBound(const LayerSpec &spec) {
  return getBounds(spec).whole;
}

double moec::reference::getRowFactor(const LayerSpec &spec) {
  return getBounds(spec).rowFactor;
}

namespace {

/// Sums squares relative to the largest number, so that they neither overflow
/// nor underflow.
class Norm {
public:
  void add(double x) {
    double size = std::fabs(x);
    if (size == 0)
      return;
    if (size > scale) {
      sum *= (scale / size) * (scale / size);
      scale = size;
    }
    sum += (size / scale) * (size / scale);
  }
  double get() const { return std::sqrt(sum) * scale; }

private:
  double scale = 0, sum = 0;
};

/// Relative to a size of 0, any difference is infinite.
double divide(double difference, double size) {
  if (size > 0)
    return difference / size;
  return difference > 0 ? std::numeric_limits<double>::infinity() : 0;
}

/// Class of a number: 0 for finite ones; NaN and both infinities have one each.
int getPlace(double x) {
  return std::isnan(x) ? 2 : std::isinf(x) ? (x > 0 ? 1 : -1) : 0;
}

} // namespace

Comparison moec::reference::compare(const Matrix &expected,
                                    const Matrix &actual, double bound,
                                    double absolute, const std::string &name,
                                    const std::vector<int64_t> &tokens,
                                    double rowFactor, bool areInputsFinite) {
  Comparison result;
  Norm differences, sizes;
  int64_t numMisplaced = 0, numNotZero = 0, numLost = 0, firstLost = 0;
  std::string misplaced, notZero, tooFar;
  for (int64_t i = 0; i < expected.getNumRows(); ++i) {
    Norm difference, size;
    bool isMisplaced = false, mustBeZero = true, isZero = true, isLost = false;
    for (int64_t j = 0; j < expected.getNumColumns(); ++j) {
      double x = expected.row(i)[j], y = actual.row(i)[j];
      mustBeZero &= x == 0;
      isZero &= y == 0;
      isLost |= getPlace(x) != 0;
      auto describe = [&] {
        return llvm::formatv("{0}[{1}, {2}] is {3}, expected {4}", name,
                             tokens[i], j, y, x)
            .str();
      };
      if (getPlace(x) != getPlace(y)) {
        if (!isMisplaced && numMisplaced++ == 0)
          misplaced = describe();
        isMisplaced = true;
      } else if (getPlace(x) == 0) {
        difference.add(x - y);
        size.add(x);
        result.largest = std::max(result.largest, std::fabs(x - y));
        if (absolute > 0 && std::fabs(x - y) > absolute && tooFar.empty())
          tooFar = describe() +
                   llvm::formatv(", farther than {0:e1}", absolute).str();
      }
    }
    if (areInputsFinite && isLost && numLost++ == 0)
      firstLost = tokens[i];
    if (mustBeZero && !isZero && numNotZero++ == 0)
      notZero =
          llvm::formatv("{0}: row {1} must be exactly zero", name, tokens[i])
              .str();
    double error = divide(difference.get(), size.get());
    if (result.worstRow < 0 || error > result.worstRowError) {
      result.worstRow = i;
      result.worstRowError = error;
    }
    differences.add(difference.get());
    sizes.add(size.get());
  }
  result.error = divide(differences.get(), sizes.get());
  if (numMisplaced > 0)
    result.failures.push_back(llvm::formatv(
        "{0} ({1} rows differ in NaN or infinities)", misplaced, numMisplaced));
  if (numLost > 0)
    result.failures.push_back(llvm::formatv(
        "{0}: {1} of {2} rows are not finite in the reference, row {3} is the "
        "first; their inputs are finite, so look for NaN or infinity among the "
        "weights, or for an overflow",
        name, numLost, expected.getNumRows(), firstLost));
  if (numNotZero > 0)
    result.failures.push_back(
        llvm::formatv("{0} ({1} such rows)", notZero, numNotZero));
  if (!tooFar.empty())
    result.failures.push_back(tooFar);
  if (!(result.error <= bound))
    result.failures.push_back(
        llvm::formatv("{0}: relative error {1:e2} is above {2:e0}", name,
                      result.error, bound));
  if (!(result.worstRowError <= rowFactor * bound))
    result.failures.push_back(llvm::formatv(
        "{0}: row {1} has relative error {2:e2}, above {3:e0}", name,
        tokens[result.worstRow], result.worstRowError, rowFactor * bound));
  return result;
}

RelativeErrors moec::reference::findRelativeErrors(const Matrix &expected,
                                                   const Matrix &actual) {
  Norm all;
  int64_t count = 0;
  auto forEachPair = [&](llvm::function_ref<void(double, double)> body) {
    for (int64_t i = 0; i < expected.getNumRows(); ++i)
      for (int64_t j = 0; j < expected.getNumColumns(); ++j)
        if (std::isfinite(expected.row(i)[j]) &&
            std::isfinite(actual.row(i)[j]))
          body(expected.row(i)[j], actual.row(i)[j]);
  };
  forEachPair([&](double x, double) {
    all.add(x);
    ++count;
  });
  if (count == 0)
    return {};
  double root = std::sqrt(static_cast<double>(count)),
         typical = all.get() / root;
  RelativeErrors errors;
  Norm differences;
  forEachPair([&](double x, double y) {
    double error = divide(std::fabs(x - y), std::max(typical, std::fabs(x)));
    errors.largest = std::max(errors.largest, error);
    differences.add(error);
  });
  errors.rms = differences.get() / root;
  return errors;
}
