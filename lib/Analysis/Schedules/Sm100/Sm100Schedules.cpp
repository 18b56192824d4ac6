//===- Sm100Schedules.cpp - ways to run a phase on Blackwell ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Schedules of GPUs with tensor memory (sm_100a). There is no cost model:
// configs are chosen by what fits.

#include "../ScheduleTables.h"
#include "moec/Analysis/Sm100.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm100;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

Contract::Contract(tile::ContractOp op, tile::ConfigAttr attr)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      weightsPerColumn(op.getLayout() ? 2 : 1),
      areBytes(mapsWeights(op.getWeightQuantAttr())) {
  groups =
      isGrouped ? cast<MemRefType>(op.getWeight().getType()).getDimSize(0) : 1;
  depth = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto config = cast<tile::Sm100ContractAttr>(attr);
  m = config.getTileRows();
  n = config.getTileColumns();
  stages = config.getStages();
}

bool Contract::mapsWeights(moe::QuantAttr quant) {
  constexpr int64_t byte = 8;
  return !quant || moe::getStorageBits(quant) == byte;
}

int64_t Contract::getAllocatedColumns() const {
  return std::max<int64_t>(llvm::PowerOf2Ceil(getUsedColumns()),
                           kMinTensorColumns);
}

tile::TensorMapAttr sm100::getWeightMap(tile::ContractOp op,
                                        const Contract &shape) {
  MapDimensions view;
  int64_t row = shape.isGrouped ? 1 : 0;
  if (shape.isGrouped)
    view.add(shape.groups, 0, 1, 1);
  bool isInterleaved = op.getLayout() && op.getLayoutAttr().getOrder() ==
                                             moe::GateUpOrder::Interleaved;
  // Gate or up, in the order of memory.
  if (shape.weightsPerColumn == 2)
    view.add(2, row, isInterleaved ? 1 : shape.columns, 1);
  view.add(shape.columns, row, isInterleaved ? 2 : 1, Contract::kBlockRows);
  view.add(shape.depth, row + 1, 1, Contract::kStep);
  return view.make(op, op.getWeight(), Contract::kStepBytes);
}

//===----------------------------------------------------------------------===//
// sm100.contract
//===----------------------------------------------------------------------===//

std::string sm100::declineContract(tile::ContractOp op) {
  if (std::string reason = declineQuantized(op); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(op); !reason.empty())
    return reason;
  int64_t depth = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  if (!areBlockScaledProducts(op.getInputQuantAttr(), op.getWeightQuantAttr(),
                              depth))
    return "tensor cores scale " + describeBlockScaledProducts() +
           "; others are decoded, by sm80.contract";
  SmallVector<std::pair<StringRef, Value>> copied{
      {"input", op.getInput()},
      {"input's scale", op.getInputScale()},
      {"weight's scale", op.getWeightScale()}};
  // A tensor map takes any strides that bind accepts.
  if (!Contract::mapsWeights(op.getWeightQuantAttr()))
    copied.push_back({"weight", op.getWeight()});
  for (auto [name, operand] : copied)
    if (!cast<MemRefType>(operand.getType()).getLayout().isIdentity())
      return ("the " + name +
              " has strides that are not known, and whole words are copied")
          .str();
  return {};
}

namespace {

std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &target) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineContract(contract); !reason.empty())
    return reason;
  Contract shape(contract, config);
  if (shape.m < Contract::kRowUnit || shape.m > Contract::kMaxRows ||
      shape.m % Contract::kRowUnit)
    return "tile_rows = " + number(shape.m) + "; give a multiple of " +
           number(Contract::kRowUnit) + " up to " + number(Contract::kMaxRows);
  constexpr int64_t most = 2 * Contract::kBlockRows;
  int64_t rows = shape.weightsPerColumn * shape.n;
  if (shape.n % Contract::kBlockRows || shape.n <= 0 || rows > most)
    return "tile_columns = " + number(shape.n) + "; give " +
           (shape.weightsPerColumn == 2 ? "128" : "128 or 256");
  if (shape.stages < Contract::kMinStages ||
      shape.stages > Contract::kMaxStages)
    return "stages = " + number(shape.stages) + "; give " +
           number(Contract::kMinStages) + " to " + number(Contract::kMaxStages);
  if (shape.getSharedBytes() > target.getSharedBytes())
    return "stages = " + number(shape.stages) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " +
           number(target.getSharedBytes());
  return {};
}

/// The highest tiles for which one is multiplied while the accumulators of
/// another are read, and as many stages as fit.
tile::ConfigAttr chooseContract(Operation *op, const Target &target) {
  auto contract = cast<tile::ContractOp>(op);
  int64_t columns =
      cast<MemRefType>(contract.getResult().getType()).getDimSize(1);
  bool isWide = !contract.getLayout() && columns > Contract::kBlockRows;
  int64_t n = isWide ? 2 * Contract::kBlockRows : Contract::kBlockRows;
  auto make = [&](int64_t rows, int64_t stages) {
    return tile::Sm100ContractAttr::get(op->getContext(), rows, n, stages);
  };
  constexpr int64_t enough = 4;
  int64_t rows = Contract::kMaxRows;
  while (Contract(contract, make(rows, enough)).getSumSets() < 2)
    rows -= Contract::kRowUnit;
  int64_t stages = Contract::kMaxStages;
  auto fits = [&] {
    Contract shape(contract, make(rows, stages));
    return shape.getSharedBytes() <= target.getSharedBytes() &&
           shape.getSumSets() == 2;
  };
  while (stages > Contract::kMinStages && !fits())
    --stages;
  return make(rows, stages);
}

moert::Expr contractGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  Contract shape(cast<tile::ContractOp>(op), config);
  return tileBlocks(shape.isGrouped, shape.groups, shape.m, shape.getPanels());
}

int64_t contractBlock(Operation *, tile::ConfigAttr) {
  return Contract::kThreads;
}

struct ContractSchedule final
    : ScheduleOf<contractIllegal, chooseContract, contractGrid, contractBlock> {
  ContractSchedule() : ScheduleOf("sm100.contract", "tile.contract") {}
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return Contract(cast<tile::ContractOp>(op), config).getSharedBytes();
  }
  SmallVector<tile::TensorMapAttr>
  tensorMaps(Operation *op, tile::ConfigAttr config) const override {
    auto contract = cast<tile::ContractOp>(op);
    Contract shape(contract, config);
    if (!shape.areBytes)
      return {};
    return {getWeightMap(contract, shape)};
  }
};

} // namespace

const Schedule &moec::getSm100ContractSchedule() {
  return getOnly<ContractSchedule>();
}
