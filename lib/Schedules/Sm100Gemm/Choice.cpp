//===- Choice.cpp - ways to run a phase on Blackwell ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Schedules of GPUs with tensor memory (sm_100a). There is no cost model:
// configs are chosen by what fits.

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Schedules/SumOrder.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm100;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

GemmShape::GemmShape(tile::GemmOp op, tile::ConfigAttr attr)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      weightsPerColumn(op.getLayout() ? 2 : 1),
      areBytes(mapsWeights(op.getWeightQuantAttr())) {
  groups =
      isGrouped ? cast<MemRefType>(op.getWeight().getType()).getDimSize(0) : 1;
  sizeK = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto config = cast<tile::Sm100GemmAttr>(attr);
  m = config.getBlockM();
  n = config.getBlockN();
  stages = config.getStages();
}

bool GemmShape::mapsWeights(moe::QuantAttr quant) {
  constexpr int64_t byte = 8;
  return !quant || moe::getStorageBits(quant) == byte;
}

int64_t GemmShape::getAllocatedColumns() const {
  return std::max<int64_t>(llvm::PowerOf2Ceil(getUsedColumns()),
                           kMinTensorColumns);
}

tile::TensorMapAttr sm100::getWeightMap(tile::GemmOp op,
                                        const GemmShape &shape) {
  MapDimensions view;
  int64_t row = shape.isGrouped ? 1 : 0;
  if (shape.isGrouped)
    view.add(shape.groups, 0, 1, 1);
  bool isInterleaved = op.getLayout() && op.getLayoutAttr().getOrder() ==
                                             moe::GateUpOrder::Interleaved;
  // Gate or up, in the order of memory.
  if (shape.weightsPerColumn == 2)
    view.add(2, row, isInterleaved ? 1 : shape.columns, 1);
  view.add(shape.columns, row, isInterleaved ? 2 : 1, GemmShape::kBlockRows);
  view.add(shape.sizeK, row + 1, 1, GemmShape::kStep);
  return view.make(op, op.getWeight(), GemmShape::kStepBytes);
}

//===----------------------------------------------------------------------===//
// sm100.gemm
//===----------------------------------------------------------------------===//

std::string sm100::declineGemm(tile::GemmOp op) {
  if (std::string reason = declineQuantized(op); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(op); !reason.empty())
    return reason;
  int64_t sizeK = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  if (!areBlockScaledProducts(op.getInputQuantAttr(), op.getWeightQuantAttr(),
                              sizeK))
    return "block-scaled tensor cores multiply " +
           describeBlockScaledProducts() +
           "; sm80.gemm dequantizes other operands";
  SmallVector<std::pair<StringRef, Value>> copied{
      {"input", op.getInput()},
      {"input's scale", op.getInputScale()},
      {"weight's scale", op.getWeightScale()}};
  // A tensor map takes any strides that bind accepts.
  if (!GemmShape::mapsWeights(op.getWeightQuantAttr()))
    copied.push_back({"weight", op.getWeight()});
  for (auto [name, operand] : copied)
    if (!cast<MemRefType>(operand.getType()).getLayout().isIdentity())
      return ("the " + name +
              " has dynamic strides, but copies need contiguous rows")
          .str();
  return {};
}

namespace {

std::string gemmIllegal(Operation *op, tile::ConfigAttr config,
                        const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  if (std::string reason = declineGemm(gemm); !reason.empty())
    return reason;
  GemmShape shape(gemm, config);
  if (shape.m < GemmShape::kRowUnit || shape.m > GemmShape::kMaxRows ||
      shape.m % GemmShape::kRowUnit)
    return "block_m = " + number(shape.m) + "; give a multiple of " +
           number(GemmShape::kRowUnit) + " up to " +
           number(GemmShape::kMaxRows);
  constexpr int64_t most = 2 * GemmShape::kBlockRows;
  int64_t rows = shape.weightsPerColumn * shape.n;
  if (shape.n % GemmShape::kBlockRows || shape.n <= 0 || rows > most)
    return "block_n = " + number(shape.n) + "; give " +
           (shape.weightsPerColumn == 2 ? "128" : "128 or 256");
  if (shape.stages < GemmShape::kMinStages ||
      shape.stages > GemmShape::kMaxStages)
    return "stages = " + number(shape.stages) + "; give " +
           number(GemmShape::kMinStages) + " to " +
           number(GemmShape::kMaxStages);
  if (shape.getSharedBytes() > target.getSharedBytes())
    return "stages = " + number(shape.stages) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " +
           number(target.getSharedBytes());
  return {};
}

/// The highest tiles for which one is multiplied while the accumulators of
/// another are read, and as many stages as fit.
tile::ConfigAttr chooseGemm(Operation *op, const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  int64_t columns = cast<MemRefType>(gemm.getResult().getType()).getDimSize(1);
  bool isWide = !gemm.getLayout() && columns > GemmShape::kBlockRows;
  int64_t n = isWide ? 2 * GemmShape::kBlockRows : GemmShape::kBlockRows;
  auto make = [&](int64_t rows, int64_t stages) {
    return tile::Sm100GemmAttr::get(op->getContext(), rows, n, stages);
  };
  constexpr int64_t enough = 4;
  int64_t rows = GemmShape::kMaxRows;
  while (GemmShape(gemm, make(rows, enough)).getSumSets() < 2)
    rows -= GemmShape::kRowUnit;
  int64_t stages = GemmShape::kMaxStages;
  auto fits = [&] {
    GemmShape shape(gemm, make(rows, stages));
    return shape.getSharedBytes() <= target.getSharedBytes() &&
           shape.getSumSets() == 2;
  };
  while (stages > GemmShape::kMinStages && !fits())
    --stages;
  return make(rows, stages);
}

moert::Expr gemmGrid(Operation *op, tile::ConfigAttr config, const Target &) {
  GemmShape shape(cast<tile::GemmOp>(op), config);
  return tileBlocks(shape.isGrouped, shape.groups, shape.m, shape.getNTiles());
}

int64_t gemmBlock(Operation *, tile::ConfigAttr) { return GemmShape::kThreads; }

struct GemmSchedule final
    : ScheduleWith<ScheduleOf<gemmIllegal, chooseGemm, gemmGrid, gemmBlock>,
                   OrdersSums> {
  GemmSchedule() : ScheduleWith("sm100.gemm", "tile.gemm") {}
  tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                 tile::ConfigAttr /*config*/) const override {
    return tile::SumOrderAttr::get(op.getContext(), tile::SumUnit::TensorCore,
                                   GemmShape::kProductBytes, /*shuffled=*/0,
                                   /*splits=*/1, /*adjacent=*/0,
                                   /*promoted=*/0, /*joined=*/false);
  }
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return GemmShape(cast<tile::GemmOp>(op), config).getSharedBytes();
  }
  SmallVector<tile::TensorMapAttr>
  tensorMaps(Operation *op, tile::ConfigAttr config) const override {
    auto gemm = cast<tile::GemmOp>(op);
    GemmShape shape(gemm, config);
    if (!shape.areBytes)
      return {};
    return {getWeightMap(gemm, shape)};
  }
};

} // namespace

const Schedule &moec::getSm100GemmSchedule() { return getOnly<GemmSchedule>(); }
