//===- FitRates.cpp - a part's coefficients from times ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Levenberg-Marquardt least squares over logarithms of coefficients and of
// times: all are positive, and a tenth too much is as bad for a short time as
// for a long one.

#include "moec/Schedules/FitRates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace moec;

static constexpr Coefficient kCoefficients[] = {
    {"readBytes", &PartFit::readBytes, "B/s", Coefficient::Measured},
    {"bf16Operations", &PartFit::bf16Operations, "1/s", Coefficient::Measured},
    {"fp8Operations", &PartFit::fp8Operations, "1/s", Coefficient::Measured},
    {"copyBytes", &PartFit::copyBytes, "B/s", Coefficient::Borrowed},
    {"streamShare", &PartFit::streamShare, "", Coefficient::Fitted},
    {"smReadBytes", &PartFit::smReadBytes, "B/s", Coefficient::Fitted},
    {"latencyUs", &PartFit::latencyUs, "us", Coefficient::Fitted},
    {"stagesRead", &PartFit::stagesRead, "", Coefficient::Fitted},
    {"unevenShare", &PartFit::unevenShare, "", Coefficient::Fitted},
    {"uncertainShare", &PartFit::uncertainShare, "", Coefficient::Borrowed},
    {"l2BytesPerClk", &PartFit::l2BytesPerClk, "B/clk", Coefficient::Fitted},
    {"l2KeptBytes", &PartFit::l2KeptBytes, "B", Coefficient::Borrowed},
    {"power", &PartFit::power, "W", Coefficient::Borrowed},
    {"readEnergy", &PartFit::readEnergy, "J/B", Coefficient::Fitted},
    {"l2Energy", &PartFit::l2Energy, "J/B", Coefficient::Fitted},
    {"bf16Energy", &PartFit::bf16Energy, "J", Coefficient::Fitted},
    {"fp8Energy", &PartFit::fp8Energy, "J", Coefficient::Fitted},
    {"tensorClock", &PartFit::tensorClock, "Hz", Coefficient::Borrowed},
    {"tensorShare", &PartFit::tensorShare, "", Coefficient::Fitted},
    {"productClk", &PartFit::productClk, "clk", Coefficient::Fitted},
    {"stepClk", &PartFit::stepClk, "clk", Coefficient::Fitted},
    {"itemClk", &PartFit::itemClk, "clk", Coefficient::Fitted},
    {"epilogueExposed", &PartFit::epilogueExposed, "", Coefficient::Fitted},
    {"gatherShare", &PartFit::gatherShare, "", Coefficient::Fitted},
    {"gatherL2Share", &PartFit::gatherL2Share, "", Coefficient::Fitted},
    {"blockMsShare", &PartFit::blockMsShare, "", Coefficient::Fitted},
    {"dynamicSchedulerShare", &PartFit::dynamicSchedulerShare, "",
     Coefficient::Borrowed},
    {"rasterGroupBytes", &PartFit::rasterGroupBytes, "B",
     Coefficient::Borrowed},
    {"unevenDeviations", &PartFit::unevenDeviations, "", Coefficient::Fitted},
    {"promotionExposed", &PartFit::promotionExposed, "", Coefficient::Fitted},
    {"rowPromotionExposed", &PartFit::rowPromotionExposed, "",
     Coefficient::Fitted},
    {"decodeMxfp4Clk", &PartFit::decodeMxfp4Clk, "clk", Coefficient::Fitted},
    {"decodeNvfp4Clk", &PartFit::decodeNvfp4Clk, "clk", Coefficient::Fitted},
    {"decodeInt4Clk", &PartFit::decodeInt4Clk, "clk", Coefficient::Fitted},
    {"decodeZeroPointsClk", &PartFit::decodeZeroPointsClk, "clk",
     Coefficient::Fitted},
    {"registerStepClk", &PartFit::registerStepClk, "clk", Coefficient::Fitted},
    {"registerTileClk", &PartFit::registerTileClk, "clk", Coefficient::Fitted},
    {"registerProductShare", &PartFit::registerProductShare, "",
     Coefficient::Fitted},
    {"launchUs", &PartFit::launchUs, "us", Coefficient::Borrowed},
    {"prologueUs", &PartFit::prologueUs, "us", Coefficient::Borrowed},
    {"firstBytesUs", &PartFit::firstBytesUs, "us", Coefficient::Borrowed},
    {"drainUs", &PartFit::drainUs, "us", Coefficient::Borrowed},
    {"behindUs", &PartFit::behindUs, "us", Coefficient::Borrowed},
    {"rankUs", &PartFit::rankUs, "us", Coefficient::Borrowed},
    {"rankCounterUs", &PartFit::rankCounterUs, "us", Coefficient::Borrowed},
    {"rankSlotUs", &PartFit::rankSlotUs, "us", Coefficient::Borrowed},
    {"otherSlotsUs", &PartFit::otherSlotsUs, "us", Coefficient::Borrowed},
    {"readCountUs", &PartFit::readCountUs, "us", Coefficient::Borrowed},
    {"countSlotUs", &PartFit::countSlotUs, "us", Coefficient::Borrowed},
    {"overlapOrder", &PartFit::overlapOrder, "", Coefficient::Fitted},
};
static_assert(sizeof(PartFit) == sizeof(llvm::StringLiteral) +
                                     std::size(kCoefficients) * sizeof(double),
              "each coefficient of PartFit is in the table");

llvm::ArrayRef<Coefficient> moec::getCoefficients() { return kCoefficients; }

namespace {

class Fitter {
public:
  Fitter(const DeviceRates &start, llvm::ArrayRef<TimedRun> runs,
         llvm::ArrayRef<double> others)
      : start(start), runs(runs), others(others) {
    for (const Coefficient &coefficient : kCoefficients)
      if (coefficient.source == Coefficient::Fitted &&
          start.*coefficient.member > 0)
        fitted.push_back(&coefficient);
  }

  RatesFit fit();

private:
  /// Expected error of times, and the distance of a coefficient's logarithm
  /// from its start that costs as much: a factor of two either way is likely.
  static constexpr double kNoise = 0.05, kReach = 0.7;

  /// `steps`: logarithms relative to `start`.
  DeviceRates getRates(llvm::ArrayRef<double> steps) const;
  /// Residuals of all runs, then of all coefficients.
  std::vector<double> getResiduals(llvm::ArrayRef<double> steps) const;
  double getRootMeanSquare(llvm::ArrayRef<double> residuals) const;
  static double sumSquares(llvm::ArrayRef<double> values) {
    double sum = 0;
    for (double value : values)
      sum += value * value;
    return sum;
  }

  const DeviceRates &start;
  llvm::ArrayRef<TimedRun> runs;
  llvm::ArrayRef<double> others;
  std::vector<const Coefficient *> fitted;
};

DeviceRates Fitter::getRates(llvm::ArrayRef<double> steps) const {
  DeviceRates rates = start;
  for (auto [coefficient, step] : llvm::zip(fitted, steps))
    rates.*coefficient->member *= std::exp(step);
  return rates;
}

std::vector<double> Fitter::getResiduals(llvm::ArrayRef<double> steps) const {
  DeviceRates rates = getRates(steps);
  std::vector<double> predicted(runs.size());
  llvm::parallelFor(0, runs.size(),
                    [&](size_t i) { predicted[i] = runs[i].predict(rates); });
  // The other launches of a row take the rest, within their bounds.
  std::vector<double> left(others.size(), 0), count(others.size(), 0);
  for (auto [run, us] : llvm::zip(runs, predicted)) {
    left[run.row] += run.us - us;
    ++count[run.row];
  }
  std::vector<double> residuals;
  for (auto [run, us] : llvm::zip(runs, predicted)) {
    double rest =
        std::clamp(left[run.row] / count[run.row], 0.0, others[run.row]);
    residuals.push_back(std::log((us + rest) / run.us));
  }
  for (double step : steps)
    residuals.push_back(kNoise / kReach * step);
  return residuals;
}

double Fitter::getRootMeanSquare(llvm::ArrayRef<double> residuals) const {
  return std::sqrt(sumSquares(residuals.take_front(runs.size())) /
                   std::max<double>(double(runs.size()), 1));
}

/// Solves the symmetric positive definite system in place (Cholesky).
static std::vector<double> solve(std::vector<std::vector<double>> matrix,
                                 std::vector<double> right) {
  size_t size = right.size();
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (size_t k = 0; k < j; ++k)
        sum -= matrix[i][k] * matrix[j][k];
      matrix[i][j] = i == j ? std::sqrt(sum) : sum / matrix[j][j];
    }
    for (size_t k = 0; k < i; ++k)
      right[i] -= matrix[i][k] * right[k];
    right[i] /= matrix[i][i];
  }
  for (size_t i = size; i-- > 0;) {
    for (size_t k = i + 1; k < size; ++k)
      right[i] -= matrix[k][i] * right[k];
    right[i] /= matrix[i][i];
  }
  return right;
}

RatesFit Fitter::fit() {
  constexpr int maxSteps = 40;
  constexpr double difference = 1e-3, converged = 1e-5;
  std::vector<double> steps(fitted.size(), 0);
  std::vector<double> residuals = getResiduals(steps);
  RatesFit result{start};
  result.before = getRootMeanSquare(residuals);
  double damping = 1e-2;
  for (int i = 0; i < maxSteps; ++i) {
    std::vector<std::vector<double>> slopes;
    for (size_t j = 0; j < steps.size(); ++j) {
      std::vector<double> moved = steps;
      moved[j] += difference;
      slopes.push_back(getResiduals(moved));
      for (auto [slope, residual] : llvm::zip(slopes.back(), residuals))
        slope = (slope - residual) / difference;
    }
    std::vector<std::vector<double>> normal(steps.size());
    std::vector<double> downhill(steps.size(), 0);
    for (size_t j = 0; j < steps.size(); ++j) {
      normal[j].resize(steps.size(), 0);
      for (size_t r = 0; r < residuals.size(); ++r) {
        downhill[j] -= slopes[j][r] * residuals[r];
        for (size_t k = 0; k <= j; ++k)
          normal[j][k] += slopes[j][r] * slopes[k][r];
      }
    }
    double sum = sumSquares(residuals), gained = 0;
    // Damps more until a step leads down.
    for (constexpr double maxDamping = 1e6; damping < maxDamping;) {
      std::vector<std::vector<double>> damped = normal;
      for (size_t j = 0; j < steps.size(); ++j)
        damped[j][j] *= 1 + damping;
      std::vector<double> next = solve(damped, downhill);
      for (auto [to, from] : llvm::zip(next, steps))
        to += from;
      std::vector<double> there = getResiduals(next);
      if (double less = sumSquares(there); less < sum) {
        gained = sum - less;
        steps = std::move(next);
        residuals = std::move(there);
        damping /= 10;
        break;
      }
      damping *= 10;
    }
    if (gained <= converged * sum)
      break;
  }
  result.rates = getRates(steps);
  result.after = getRootMeanSquare(residuals);
  return result;
}

} // namespace

RatesFit moec::fitRates(const DeviceRates &start, llvm::ArrayRef<TimedRun> runs,
                        llvm::ArrayRef<double> others) {
  return Fitter(start, runs, others).fit();
}

void moec::printFit(const PartFit &fit, llvm::StringRef part,
                    llvm::ArrayRef<std::string> comment,
                    llvm::raw_ostream &os) {
  static constexpr llvm::StringLiteral kSources[] = {"measured", "fitted",
                                                     "borrowed"};
  for (const std::string &line : comment)
    os << "// " << line << "\n";
  os << "/*fittedOn=*/\"" << part << "\",\n";
  for (const Coefficient &coefficient : kCoefficients) {
    os << "/*" << coefficient.name << "=*/"
       << llvm::format("%.4g", fit.*coefficient.member) << ", // ";
    if (!coefficient.unit.empty())
      os << coefficient.unit << ", ";
    os << kSources[coefficient.source];
    if (coefficient.source == Coefficient::Borrowed && fit.fittedOn != part)
      os << " from " << fit.fittedOn;
    os << "\n";
  }
}
