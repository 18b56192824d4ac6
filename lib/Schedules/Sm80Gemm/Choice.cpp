//===- Choice.cpp - choice of sm80.gemm -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Schedules/RowVectors.h"
#include "moec/Schedules/SumOrder.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace mlir;
using namespace moec;
using namespace moec::sm80;

/// Whether each of the `n` columns of a CTA and projection has its own weight
/// scale.
static bool haveOwnScales(tile::GemmOp op, int64_t n) {
  int64_t rows = moe::getScaleGroup(op.getWeightQuantAttr()).rows;
  if (rows == moe::ScaleGroup::kAll)
    return false;
  bool areMixed = op.getLayout() && op.getLayoutAttr().getOrder() ==
                                        moe::GateUpOrder::Interleaved;
  return rows % (areMixed ? 2 * n : n);
}

/// Bits of a stored element of an operand.
static int64_t getStorageBits(Value operand, moe::QuantAttr quant) {
  return quant ? moe::getStorageBits(quant)
               : cast<MemRefType>(operand.getType()).getElementTypeBitWidth();
}

GemmShape::GemmShape(tile::GemmOp op, tile::ConfigAttr attr)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      weightsPerColumn(op.getLayout() ? 2 : 1), compute(getDecodedType(op)),
      scales(op) {
  auto weightType = cast<MemRefType>(op.getWeight().getType());
  auto inputType = cast<MemRefType>(op.getInput().getType());
  groups = isGrouped ? weightType.getDimSize(0) : 1;
  sizeK = inputType.getShape().back();
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto config = cast<tile::Sm80GemmAttr>(attr);
  m = config.getBlockM();
  n = config.getBlockN();
  k = config.getBlockK();
  lanes = config.getVectorWidth();
  input = {getStorageBits(op.getInput(), op.getInputQuantAttr()), sizeK, k};
  weight = {getStorageBits(op.getWeight(), op.getWeightQuantAttr()), sizeK, k};
  partK = k;
  for (moe::QuantAttr quant : {op.getInputQuantAttr(), op.getWeightQuantAttr()})
    if (getScaleTime(quant) == ScaleTime::InLoop)
      partK = std::gcd(partK, moe::getScaleGroup(quant).columns);
  hasColumnScales = scales.weight == ScaleTime::InLoop && haveOwnScales(op, n);
  hasMinima = op.getWeightQuant() && op.getWeightQuantAttr().getMinimum();
  hasElementFactors = scales.weight == ScaleTime::OnElements ||
                      (op.getWeightZeroPoint() && !hasMinima);
}

int64_t GemmShape::getSharedBytes() const {
  int64_t sums = weightsPerColumn * m * getSumStride() * 4;
  return std::max(kStages * getStageBytes(), sums);
}

namespace {

/// Maximum shared memory of a CTA on every architecture from sm_80 on.
constexpr int64_t kMaxSharedBytes = 99 * 1024;

/// Reason to decline the op that no config can remove; empty if there is none.
std::string declineGemm(tile::GemmOp op) {
  if (std::string reason = declineQuantized(op); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(op); !reason.empty())
    return reason;
  constexpr StringLiteral otherwise =
      "quantized in a way that is not dequantized here; supported are ";
  if (!isInputDecodedOnGpu(op.getInputQuantAttr()))
    return ("the input is " + otherwise + describeInputDecodedOnGpu()).str();
  if (!isWeightDecodedOnGpu(op.getWeightQuantAttr()))
    return ("the weight is " + otherwise + describeWeightDecodedOnGpu()).str();
  int64_t sizeK = cast<MemRefType>(op.getInput().getType()).getShape().back();
  if (getStorageBits(op.getWeight(), op.getWeightQuantAttr()) == 4 &&
      sizeK % kDecodedColumns)
    return "a row has " + number(sizeK) +
           " 4-bit elements; give a multiple of " + number(kDecodedColumns);
  return {};
}

/// Whether a k tile has `bytes` of a row of the wider operand. Next to f32,
/// 4-bit elements need more, so that threads still have chunks of the narrow
/// operand to copy.
static bool isStepBytes(const GemmShape &shape, int64_t bytes) {
  if (shape.weight.bits == 4 && shape.input.bits == 32)
    return bytes == 256;
  return bytes == 64 || bytes == 128;
}

/// Reason why BLOCK_K does not suit the operands; empty if it does.
std::string stepIllegal(const GemmShape &shape) {
  int64_t rowBytes =
      std::max(shape.input.getBytes(shape.k), shape.weight.getBytes(shape.k));
  if (!isStepBytes(shape, rowBytes))
    return "block_k = " + number(shape.k) + " is " + number(rowBytes) +
           " bytes per row; give " +
           (isStepBytes(shape, 64) ? "64 or 128 bytes" : "256 bytes");
  for (auto [field, value, rows] :
       {std::tuple("block_m", shape.m, shape.input),
        std::tuple("block_n", shape.n, shape.weight)})
    if (value % rows.getRowsPerCopy())
      return std::string(field) + " = " + number(value) +
             " with block_k = " + number(shape.k) +
             "; give a multiple of the " + number(rows.getRowsPerCopy()) +
             " rows that are copied at once";
  if (shape.k % kDecodedColumns && shape.input.bits != shape.weight.bits)
    return "block_k = " + number(shape.k) + "; give a multiple of the " +
           number(kDecodedColumns) + " elements that are dequantized at once";
  return {};
}

std::string gemmIllegal(Operation *op, tile::ConfigAttr config,
                        const Target &) {
  auto gemm = cast<tile::GemmOp>(op);
  if (std::string reason = declineGemm(gemm); !reason.empty())
    return reason;
  GemmShape shape(gemm, config);
  auto result = cast<MemRefType>(gemm.getResult().getType());
  for (auto [field, value] : {std::pair<StringRef, int64_t>{"block_m", shape.m},
                              {"block_n", shape.n}})
    if (value <= 0 || value % 32)
      return (field + " = " + Twine(value) + "; give a multiple of 32").str();
  if (shape.k <= 0)
    return needsPositive("block_k", shape.k);
  if (std::string reason = stepIllegal(shape); !reason.empty())
    return reason;
  if (std::string reason = whyNotLanes(shape.lanes, result); !reason.empty())
    return reason;
  int64_t sums = shape.getAccumulators();
  if (sums > shape.getMaxAccumulators())
    return "block_m = " + number(shape.m) + ", block_n = " + number(shape.n) +
           " needs " + number(sums) +
           " accumulators per thread; give at most " +
           number(shape.getMaxAccumulators());
  if (shape.getSharedBytes() > kMaxSharedBytes)
    return "block_m = " + number(shape.m) + ", block_n = " + number(shape.n) +
           ", block_k = " + number(shape.k) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " + number(kMaxSharedBytes);
  return {};
}

/// Whether scales of columns and minima of all parts of a k tile, which ptxas
/// loads together, leave too few registers beside two decoded operands;
/// GpuFormats.FitInRegisters assembles such kernels.
bool hasManyFactors(tile::GemmOp op, const GemmShape &shape) {
  constexpr int64_t most = 2, byteBits = 8;
  return op.getInputQuant() && shape.hasColumnScales &&
         (shape.hasMinima || shape.weight.bits == byteBits) &&
         shape.getParts() > most;
}

/// Gemms with few columns, such as a router's, have few CTAs and so get narrow
/// tiles, unless weights of few bits are decoded next to f32: then the threads
/// would not have a chunk each to copy.
tile::ConfigAttr chooseGemm(Operation *op, const Target &) {
  auto gemm = cast<tile::GemmOp>(op);
  auto result = cast<MemRefType>(gemm.getResult().getType());
  int64_t inputBits = getStorageBits(gemm.getInput(), gemm.getInputQuantAttr());
  int64_t weightBits =
      getStorageBits(gemm.getWeight(), gemm.getWeightQuantAttr());
  int64_t bits = std::max(inputBits, weightBits);
  constexpr int64_t fewColumns = 1024;
  bool isNarrow = result.getDimSize(1) <= fewColumns && !gemm.getOffsets() &&
                  weightBits * 4 > bits;
  bool isPlainF32 = inputBits == weightBits && bits > 16;
  int64_t rowBytes = isPlainF32 ? 64 : weightBits * 8 == bits ? 256 : 128;
  int64_t columns = isNarrow ? 32 : 64;
  auto make = [&](int64_t m) {
    return tile::Sm80GemmAttr::get(op->getContext(), /*block_m=*/m,
                                   /*block_n=*/columns, rowBytes * 8 / bits,
                                   getVectorLanes(result));
  };
  constexpr int64_t most = 64, fewer = 32;
  if (!isNarrow && hasManyFactors(gemm, GemmShape(gemm, make(most)))) {
    rowBytes /= 2;
    if (GemmShape(gemm, make(most)).partK < kDecodedColumns)
      columns = 32;
  }
  GemmShape shape(gemm, make(most));
  bool fits = shape.getAccumulators() <= shape.getMaxAccumulators();
  return make(fits ? most : fewer);
}

moert::Expr gemmGrid(Operation *op, tile::ConfigAttr config, const Target &) {
  GemmShape shape(cast<tile::GemmOp>(op), config);
  return tileBlocks(shape.isGrouped, shape.groups, shape.m, shape.getNTiles());
}

int64_t gemmBlock(Operation *, tile::ConfigAttr) { return GemmShape::kThreads; }

int64_t gemmShared(Operation *op, tile::ConfigAttr config) {
  return GemmShape(cast<tile::GemmOp>(op), config).getSharedBytes();
}

/// `OrdersSums::getSumOrder`. Decoders choose the elements of an mma within 16
/// or, for words of 4-bit elements, 32 (OperandDecoder.h).
tile::SumOrderAttr getGemmOrder(tile::GemmOp op, tile::ConfigAttr config) {
  constexpr int64_t mmaK = 16;
  GemmShape shape(op, config);
  bool usesCores = shape.usesTensorCores();
  bool isDecoded = op.getInputQuantAttr() || op.getWeightQuantAttr();
  int64_t shuffled = shape.weight.bits == 4 ? 2 * mmaK : mmaK;
  return tile::SumOrderAttr::get(
      op.getContext(),
      usesCores ? tile::SumUnit::TensorCore : tile::SumUnit::Fma,
      usesCores ? mmaK : 1, usesCores && isDecoded ? shuffled : 0,
      /*splits=*/1, /*adjacent=*/0, shape.scales.areInLoop() ? shape.partK : 0,
      /*joined=*/false);
}

struct GemmSchedule final
    : ScheduleWith<ScheduleOf<gemmIllegal, chooseGemm, gemmGrid, gemmBlock>,
                   OrdersSums> {
  GemmSchedule() : ScheduleWith("sm80.gemm", "tile.gemm") {}
  tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                 tile::ConfigAttr config) const override {
    return getGemmOrder(op, config);
  }
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return gemmShared(op, config);
  }
};

} // namespace

const Schedule &moec::getSm80GemmSchedule() { return getOnly<GemmSchedule>(); }
