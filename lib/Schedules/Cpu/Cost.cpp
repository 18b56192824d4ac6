//===- Cost.cpp - expected time of a gemm on the CPU ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two times overlap in part: that of the weights' bytes from memory, and that
// of instructions. Rates are the host's, measured where moec runs; how much of
// them kernels reach is fitted (benchmarks/journal/cpu.md). Times choose
// nothing.
//
//===----------------------------------------------------------------------===//

#include "Cost.h"

#include "Instructions.h"
#include "Shape.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace moec;

namespace {

/// Coefficients, fitted on two cores of a Xeon of the generation Sapphire
/// Rapids. Times of instructions that are no products are in FMAs of a vector.
struct Fit {
  /// Share of the measured bandwidth that a stream of weights reaches.
  double streamShare = 0.95;
  /// Operations of tiles that take as long as one of an FMA, with the copies of
  /// rows and of sums alone. One row needs no copies.
  double copiedOperations = 4;
  /// To load a vector of operands that is widened to f32, and one that is f32.
  double widenedOperand = 1.6, floatOperand = 3.4;
  /// To decode a vector of weights and store it as f32.
  double decoded = 10;
  /// Order of the norm by which both times overlap: sums have order 1.
  double overlapOrder = 1.25;
};
constexpr Fit kFit;

/// A call of `visit` for each number of rows of a group that is likely, with
/// the mean number of groups that have it.
void forRowCounts(tile::GemmOp op, int64_t tokens, int64_t topK,
                  llvm::function_ref<void(int64_t rows, double groups)> visit) {
  if (!op.getOffsets())
    return visit(tokens, 1);
  auto groups =
      double(cast<MemRefType>(op.getWeight().getType()).getDimSize(0));
  double pick = std::min(1.0, double(topK) / groups);
  if (pick >= 1)
    return visit(tokens, groups);
  auto n = double(tokens);
  double mean = n * pick, reach = 6 * std::sqrt(mean) + 6;
  auto last = int64_t(std::min(n, mean + reach));
  for (auto rows = int64_t(std::max(1.0, mean - reach)); rows <= last; ++rows) {
    auto m = double(rows);
    double log = std::lgamma(n + 1) - std::lgamma(m + 1) -
                 std::lgamma(n - m + 1) + m * std::log(pick) +
                 (n - m) * std::log1p(-pick);
    visit(rows, groups * std::exp(log));
  }
}

/// The measured rate of the config's instruction, in operations per second.
double getRate(tile::CpuGemmAttr config, const HostRates &host) {
  switch (cpu::getInstructionK(config)) {
  case cpu::kPairs:
    return host.pairs;
  case cpu::kQuads:
    return host.quads;
  case cpu::kTiles:
    return host.tiles;
  case cpu::kByteTiles:
    return host.byteTiles;
  default:
    return host.fmas;
  }
}

/// Operations that vectors multiply for `rows` rows of a group, with those that
/// other instructions take the time of. `weights` are all elements of a group.
double countVectorOperations(tile::GemmOp op, tile::CpuGemmAttr config,
                             int64_t rows, double weights) {
  int64_t perColumn = op.getLayout() ? 2 : 1;
  auto n = double(config.getRegisterColumns() * perColumn);
  auto m = config.getRegisterRows();
  bool isDecoded = cpu::decodesForFmas(op, config);
  bool isFloat =
      isDecoded ||
      cast<MemRefType>(op.getWeight().getType()).getElementType().isF32();
  double operand = isFloat ? kFit.floatOperand : kFit.widenedOperand;
  double blocks = double(rows / m) * (double(m) + n);
  if (rows % m)
    blocks += double(rows % m) + n;
  double columns = weights / n;
  double operations = double(rows) * weights + operand * columns * blocks;
  if (isDecoded) {
    double parts = double(llvm::divideCeil(rows, int64_t(64)));
    operations += kFit.decoded * parts * weights;
  }
  return 2 * operations;
}

} // namespace

Prediction cpu::predictGemm(tile::GemmOp op, tile::CpuGemmAttr config,
                            double bytes, double operations, double readBytes,
                            int64_t tokens, int64_t topK,
                            const HostRates &host) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  int64_t perColumn = op.getLayout() ? 2 : 1;
  int64_t rank = weight.getRank();
  int64_t columns = weight.getDimSize(rank - 2) / perColumn;
  int64_t sizeK =
      moe::getRowWidth(op.getWeightQuantAttr(), weight.getDimSize(rank - 1));
  double weights = double(columns * perColumn) * double(sizeK);
  double rate = getRate(config, host);
  Prediction prediction;
  if (!(rate > 0))
    rate = host.fmas;
  double seconds = 0;
  forRowCounts(op, tokens, topK, [&](int64_t rows, double groups) {
    if (usesTiles(config)) {
      double own = 2 * double(llvm::alignTo(rows, kTileSize)) * weights;
      seconds += groups * own / rate;
      if (rows > 1)
        seconds += groups * own / (host.fmas * kFit.copiedOperations);
    } else {
      seconds +=
          groups * countVectorOperations(op, config, rows, weights) / rate;
    }
    prediction.activeGroups += groups;
  });
  prediction.tensorUs = 1e6 * seconds;
  prediction.streamUs = 1e6 * bytes / (readBytes * kFit.streamShare);
  // The last CTA of a thread delays the launch by half of its time.
  prediction.items =
      prediction.activeGroups *
      double(llvm::divideCeil(columns, config.getColumnsPerCta()));
  double uneven =
      1 + double(host.threads - 1) / (2 * std::max(prediction.items, 1.0));
  prediction.us =
      uneven * std::pow(std::pow(prediction.streamUs, kFit.overlapOrder) +
                            std::pow(prediction.tensorUs, kFit.overlapOrder),
                        1 / kFit.overlapOrder);
  prediction.floorUs = 1e6 * std::max(bytes / readBytes, operations / rate);
  return prediction;
}
