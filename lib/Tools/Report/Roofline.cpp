//===- Roofline.cpp - roofline of gemms -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"
#include "moec/Schedules/Device.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using namespace moec::report;
using llvm::formatv;

namespace {

/// A gemm at one token count.
struct Point {
  int64_t tokens;
  Work work;
  double us;
  std::string kernel;

  double getIntensity() const { return work.operations / work.bytes; }
  double getRate() const { return work.operations / us * 1e6; }
};

/// A gemm at all token counts.
struct Series {
  std::string stage;
  std::vector<Point> expected, measured;
  Keys keys;
};

class Roofline {
public:
  Roofline(const Layer &layer, raw_ostream &os)
      : layer(layer), device(*layer.device),
        drawing(width, height, "roofline", os) {}

  void draw();

private:
  static double getX(double intensity) {
    return left + (std::log10(intensity) - leastX) / (mostX - leastX) *
                      (width - left - right);
  }
  static double getY(double rate) {
    return height - bottom -
           (std::log10(rate) - leastY) / (mostY - leastY) *
               (height - top - bottom);
  }
  void drawAxes();
  void drawRoof(double peak, StringRef name, StringRef style);
  void drawPoints();
  std::vector<Series> getSeries() const;

  const Layer &layer;
  const DeviceRates &device;
  Drawing drawing;

  static constexpr double width = 900, height = 420, left = 78, right = 150,
                          top = 16, bottom = 44;
  /// Axis limits as powers of ten: operations per byte, and per second.
  static constexpr double leastX = -1, mostX = 4.5, leastY = 9, mostY = 15.6;
};

void Roofline::drawAxes() {
  for (int power = int(leastX); power <= int(mostX); ++power) {
    double x = getX(std::pow(10, power));
    drawing.line(x, top, x, height - bottom, "grid");
    drawing.text(x, height - bottom + 16, "axis middle",
                 power < 0 ? formatv("{0:f1}", std::pow(10, power)).str()
                           : "1" + std::string(size_t(power), '0'));
  }
  constexpr std::pair<int, StringLiteral> rates[] = {
      {9, "1 GFLOP/s"}, {10, "10"},  {11, "100"}, {12, "1 TFLOP/s"},
      {13, "10"},       {14, "100"}, {15, "1000"}};
  for (auto [power, text] : rates) {
    double y = getY(std::pow(10, power));
    drawing.line(left, y, width - right, y, "grid");
    drawing.text(left - 6, y + 4, "axis end", text);
  }
  drawing.text((left + width - right) / 2, height - 8, "axis middle",
               "operations per byte of memory");
}

void Roofline::drawRoof(double peak, StringRef name, StringRef style) {
  double ridge = peak / device.readBytes;
  drawing.curve({{getX(std::pow(10, leastX)),
                  getY(device.readBytes * std::pow(10, leastX))},
                 {getX(ridge), getY(peak)},
                 {width - right, getY(peak)}},
                style);
  drawing.text(width - right + 6, getY(peak) + 4, "axis",
               peak < 1e13
                   ? formatv("{0} {1:f2} TFLOP/s", name, peak / 1e12).str()
                   : formatv("{0} {1:f0} TFLOP/s", name, peak / 1e12).str());
}

std::vector<Series> Roofline::getSeries() const {
  std::vector<Series> all;
  for (const TokenRange &range : layer.ranges)
    for (auto [phase, figures] : llvm::zip(range.phases, range.figures)) {
      if (!isa<tile::GemmOp>(phase.op))
        continue;
      tile::KernelOp kernel = phase.kernel;
      std::string symbol = kernel.getSymName().str(), stage = getStage(phase);
      auto found = llvm::find_if(
          all, [&](const Series &series) { return series.stage == stage; });
      Series &series = found == all.end()
                           ? all.emplace_back(Series{stage, {}, {}, {}})
                           : *found;
      for (auto [tokens, figure] : llvm::zip(range.ends, figures))
        if (figure.work.operations > 0 && figure.prediction->us > 0) {
          series.expected.push_back(
              {tokens, figure.work, figure.prediction->us, symbol});
          series.keys.merge(getKeys(phase));
        }
      // The time of a launch of several phases cannot be assigned to one of
      // them.
      if (!phase.isAlone)
        continue;
      for (const MeasuredRow &row : layer.measured.rows)
        if (auto us = row.kernels.find(symbol);
            us != row.kernels.end() && layer.findRange(row.tokens) == &range)
          series.measured.push_back({row.tokens,
                                     layer.getFigures(phase, row.tokens).work,
                                     us->second, symbol});
    }
  return all;
}

void Roofline::drawPoints() {
  constexpr StringLiteral styles[] = {"series0", "series1", "series2",
                                      "series3", "series4", "series5"};
  double legendY = top + 120;
  for (auto [i, series] : llvm::enumerate(getSeries())) {
    StringRef style = styles[i % std::size(styles)];
    auto drawPoint = [&, &series = series](const Point &point, StringRef what) {
      drawing.dot(
          getX(point.getIntensity()), getY(point.getRate()),
          (what + " " + style).str(), series.keys,
          formatv("{0}, T={1}: {2:f1} operations per byte, {3:f1} TFLOP/s, "
                  "{4} {5} ({6})",
                  series.stage, point.tokens, point.getIntensity(),
                  point.getRate() / 1e12, showTime(point.us), what,
                  point.kernel)
              .str());
    };
    SmallVector<std::pair<double, double>> path;
    for (const Point &point : series.expected)
      path.push_back({getX(point.getIntensity()), getY(point.getRate())});
    drawing.curve(path, ("path " + style).str());
    for (const Point &point : series.expected)
      drawPoint(point, "expected");
    for (const Point &point : series.measured)
      drawPoint(point, "measured");
    drawing.dot(width - right + 12, legendY, ("expected " + style).str(),
                series.keys, series.stage);
    drawing.fittedText(width - right + 22, legendY + 4, right - 22, "axis",
                       series.stage);
    legendY += 20;
  }
  if (!layer.measured.rows.empty()) {
    drawing.dot(width - right + 12, legendY, "measured series0", {},
                "measured");
    drawing.text(width - right + 22, legendY + 4, "axis", "measured");
  }
}

void Roofline::draw() {
  drawAxes();
  bool hasFloat8 = false, has16 = false;
  ModuleOp(layer.module).walk([&](tile::GemmOp op) {
    Type type = cast<MemRefType>(op.getInput().getType()).getElementType();
    (type.getIntOrFloatBitWidth() == 8 ? hasFloat8 : has16) = true;
  });
  if (device.host) {
    // The roof of each instruction that some gemm may have.
    const HostRates &host = *device.host;
    drawRoof(host.fmas, "f32", "roof");
    double bf16 = std::max(host.tiles, host.pairs),
           int8 = std::max(host.byteTiles, host.quads);
    if (has16 && bf16 > 0)
      drawRoof(bf16, "bf16", "roof");
    if (hasFloat8 && int8 > 0)
      drawRoof(int8, "int8", "roof");
  } else if (has16 || !hasFloat8) {
    drawRoof(device.bf16Operations, "16 bits", "roof");
  }
  if (hasFloat8 && !device.host)
    drawRoof(device.fp8Operations, "fp8", "roof");
  drawing.text(getX(0.5) - 6, getY(device.readBytes * 0.5) - 4, "axis end",
               formatv("{0:f2} TB/s", device.readBytes / 1e12).str());
  drawPoints();
}

} // namespace

void moec::report::drawRoofline(const Layer &layer, raw_ostream &os) {
  os << "<p>Gemms at the ends of their ranges of tokens, from few tokens on "
        "the left to many. Gemms that share a launch each have their part of "
        "its expected time.</p>\n";
  Roofline(layer, os).draw();
}
