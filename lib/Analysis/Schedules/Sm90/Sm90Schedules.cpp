//===- Sm90Schedules.cpp - ways to run a phase on Hopper GPUs ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"
#include "../Sm80/Gemv.h"
#include "Sm90Choice.h"
#include "Sm90Cost.h"
#include "Sm90Join.h"
#include "Sm90LargeGroups.h"
#include "moec/Analysis/Rewrites/CountIds.h"
#include "moec/Analysis/Rewrites/CutColumns.h"
#include "moec/Analysis/Rewrites/PermuteRows.h"
#include "moec/Analysis/Rewrites/QuantizeInputs.h"
#include "moec/Analysis/Rewrites/RunPhases.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Analysis/Sm90.h"
#include "moec/Analysis/Spills.h"
#include "moec/Dialect/Moe/Fragments.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// Whether the tensor cores' sums of a row would lose too many digits. For e4m3
/// they keep 14 and cut off the others (docs/design/ptx-simulator.md has the
/// rule). By that rule sums of 2048 products of quantized normal values are off
/// by 0.9e-3 of their size (root of the mean square), of 7168 by 1.8e-3, where
/// rounding to bf16 costs 1.6e-3; added step by step by 0.13e-3.
static bool losesDigits(ComputeType type, int64_t depth) {
  constexpr int64_t most = 2048;
  return type == ComputeType::E4M3 && depth > most;
}

Contract::Contract(tile::ContractOp op, tile::ConfigAttr attr)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      findsScales(static_cast<bool>(op.getResultScale())),
      weightsPerColumn(op.getLayout() ? 2 : 1),
      compute(op.getInputQuantAttr() ? getNativeType(op) : getDecodedType(op)),
      scales(op), minGroupRows(op.getMinGroupRows()),
      maxGroupRows(op.getMaxGroupRows()) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  auto result = cast<MemRefType>(op.getResult().getType());
  groups = isGrouped ? weight.getDimSize(0) : 1;
  auto input = cast<MemRefType>(op.getInput().getType());
  depth = input.getDimSize(1);
  columns = result.getDimSize(1);
  launchColumns = int64_t(op.getNumColumns().value_or(uint64_t(columns)));
  fromRegisters = hasFragments(op.getWeightQuantAttr());
  promotes = fromRegisters
                 ? moe::Fragments(op.getWeightQuantAttr()).areScalesOfSums()
                 : copiesScales() || losesDigits(compute, depth);
  storageBits = fromRegisters ? moe::getStorageBits(op.getWeightQuantAttr())
                              : weight.getElementTypeBitWidth();
  unitBytes = unitScaleBytes = 0;
  hasBook = false;
  swizzledBytes = kStepBytes;
  if (fromRegisters) {
    moe::Fragments format(op.getWeightQuantAttr());
    swizzledBytes = format.getInputBytes();
    unitBytes = format.getUnitBytes();
    unitScaleBytes = moe::Fragments::kRows * format.getRowBytes();
    hasBook = format.book.has_value();
  }
  inputBits = input.getElementTypeBitWidth();
  resultBytes = result.getElementTypeBitWidth() / 8;
  quantizes = resultBytes == 1;
  auto config = cast<tile::Sm90ContractAttr>(attr);
  tileRows.assign(config.getTileRows().begin(), config.getTileRows().end());
  n = config.getTileColumns();
  k = config.getStep();
  stages = config.getStages();
  l2Rows = config.getL2Rows();
  mapRows = config.getMapRows();
  rowsOnM = config.getRowsOnM();
  hasQueue = config.getQueue();
}

Repack::Repack(tile::RepackOp op) {
  auto type = cast<MemRefType>(op.getWeight().getType());
  rows = type.getShape().end()[-2];
  depth = moe::getRowWidth(op.getQuant(), type.getShape().back());
  codeBits = moe::getStorageBits(op.getQuant());
  // Per row; with 64 rows the rest of shared memory holds everything else.
  constexpr int64_t maxBytes = 3584;
  int64_t parts = llvm::divideCeil(getCodeRowBytes(), maxBytes);
  partUnits = llvm::divideCeil(getUnits(), parts);
}

void Contract::shareMemoryWith(const Contract &other) {
  minStageBytes = other.getStageBytes();
  minStagingBytes = other.getStagingBytes();
  minExchangeBytes = other.getExchangeBytes();
  minProducerRegisters = other.getOwnProducerRegisters();
  minAccumulators = other.getAccumulators();
}

std::string Contract::whyApart(const Contract &other) const {
  if (copiesScales() || other.copiesScales())
    return "the threads that copy the scales of rows do not wait for the "
           "first one";
  if (fromRegisters || other.fromRegisters)
    return "scales of weights that are multiplied from registers lie behind "
           "the ring, as many as each product has";
  if (mapRows)
    return "map_rows = true of the first: the ring's barriers count the "
           "threads that copy its rows";
  if (stages != other.stages)
    return "stages = " + std::to_string(stages) + " and " +
           std::to_string(other.stages) + " of one ring";
  if (tileRows != other.tileRows || rowsOnM != other.rowsOnM)
    return "their tile_rows differ, and the table of tiles is one";
  if (groups != other.groups || !isGrouped || !other.isGrouped ||
      minGroupRows != other.minGroupRows || maxGroupRows != other.maxGroupRows)
    return "their groups differ";
  return {};
}

tile::ContractOp sm90::getPartner(tile::ContractOp op) {
  for (auto other : op->getBlock()->getOps<tile::ContractOp>())
    if ((op.getSignals() && other.getAwaits() == op.getSignals()) ||
        (op.getAwaits() && other.getSignals() == op.getAwaits()))
      return other;
  return nullptr;
}

tile::QuantizeOp sm90::getQuantization(tile::ContractOp op) {
  return op.getAwaits() ? dyn_cast_or_null<tile::QuantizeOp>(op->getPrevNode())
                        : nullptr;
}

/// The partner's own shape; nothing if there is no partner or if it has no
/// config of this schedule.
static std::optional<Contract> getPartnerShape(tile::ContractOp op) {
  tile::ContractOp partner = getPartner(op);
  if (!partner ||
      !isa_and_nonnull<tile::Sm90ContractAttr>(partner.getConfigAttr()))
    return std::nullopt;
  return Contract(partner, partner.getConfigAttr());
}

Contract sm90::getShapeInKernel(tile::ContractOp op, tile::ConfigAttr config) {
  Contract shape(op, config);
  if (std::optional<Contract> partner = getPartnerShape(op))
    shape.shareMemoryWith(*partner);
  return shape;
}

/// Index of a memref among the kernel's arguments.
static int64_t getArgumentNumber(Value memref) {
  return cast<BlockArgument>(memref).getArgNumber();
}

std::string sm90::declineQuant(tile::ContractOp op) {
  moe::QuantAttr input = op.getInputQuantAttr();
  moe::QuantAttr weight = op.getWeightQuantAttr();
  int64_t depth = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  if ((!input && !weight) || areNativeProducts(input, weight, depth) ||
      (isScaledByRow(input) && hasFragments(weight)))
    return {};
  std::string reason =
      "tensor cores take " + describeNativeProducts() +
      ", or 16 bits or f8E4M3FN by row with weights in fragments; others are "
      "decoded, by sm80.contract";
  std::optional<moe::Packing> packing = moe::Fragments::getPacking(
      cast<MemRefType>(op.getInput().getType()).getElementType());
  if (weight && packing) {
    if (std::string whyNot = moe::Fragments::whyNot(weight, *packing);
        !whyNot.empty())
      reason += "; these weights have no fragments: " + whyNot;
  }
  return reason;
}

/// Adds the tensor maps of input rows, if any.
static void addRowMaps(tile::ContractOp op, const Contract &shape,
                       SmallVector<tile::TensorMapAttr> &maps) {
  if (!shape.mapRows)
    return;
  int64_t rows = cast<MemRefType>(op.getInput().getType()).getDimSize(0);
  int64_t units = shape.getUnits(), width = shape.k / units;
  for (int64_t height : shape.tileRows) {
    SmallVector<int64_t> sizes{rows, shape.depth}, along{0, 1}, steps{1, 1},
        box{height, shape.k};
    // In shared memory, rows are as wide as the swizzle.
    if (units > 1) {
      sizes = {shape.depth / width, rows, width};
      along = {1, 0, 1};
      steps = {width, 1, 1};
      box = {units, height, width};
    }
    maps.push_back(tile::TensorMapAttr::get(
        op.getContext(), getArgumentNumber(op.getInput()), sizes, along, steps,
        box, shape.swizzledBytes));
  }
}

/// The tensor map of prepacked weights or of their scales. Dimensions: matrix,
/// block of 64 rows, half of a block, bytes. The `share` bytes that a half has
/// of a packed tile are contiguous, those of successive packed tiles follow
/// each other across the ends of rows; the innermost extent of a box is at most
/// 256 bytes.
static tile::TensorMapAttr getUnitMap(tile::ContractOp op,
                                      const Contract &shape, Value operand,
                                      int64_t share) {
  using moe::Fragments;
  int64_t rows = shape.weightsPerColumn * shape.columns;
  int64_t piece = Contract::getUnitPiece(share);
  int64_t row = shape.isGrouped ? 1 : 0;
  auto getRow = [&](int64_t block, int64_t run) {
    return Fragments::getRunRow(block, run, rows, op.getLayoutAttr());
  };
  MapDimensions view;
  if (shape.isGrouped)
    view.add(shape.groups, 0, 1, 1);
  view.add(rows / Fragments::kRows, row, getRow(1, 0), shape.getWeightBlocks());
  view.add(2, row, getRow(0, 1), 2);
  view.add(shape.depth / Fragments::kDepth * share / piece, row + 1, piece,
           shape.getUnits() * share / piece);
  view.add(piece, row + 1, 1, piece);
  return view.make(op, operand, /*swizzle=*/0);
}

SmallVector<tile::TensorMapAttr> sm90::getTensorMaps(tile::ContractOp op,
                                                     const Contract &shape) {
  MapDimensions view;
  int64_t row = shape.isGrouped ? 1 : 0;
  SmallVector<tile::TensorMapAttr> maps;
  if (shape.fromRegisters) {
    maps = {
        getUnitMap(op, shape, op.getWeight(), shape.unitBytes / 2),
        getUnitMap(op, shape, op.getWeightScale(), shape.unitScaleBytes / 2)};
    addRowMaps(op, shape, maps);
    return maps;
  }
  if (shape.isGrouped)
    view.add(shape.groups, 0, 1, 1);
  if (shape.weightsPerColumn == 1) {
    view.add(shape.columns, row, 1, shape.n);
  } else {
    // Dimensions: groups of columns, gate or up, column.
    constexpr int64_t paired = Contract::kPairedRows;
    bool isInterleaved =
        op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved;
    int64_t column = isInterleaved ? 2 : 1;
    view.add(shape.columns / paired, row, paired * column, shape.n / paired);
    view.add(2, row, isInterleaved ? 1 : shape.columns, 2);
    view.add(paired, row, column, paired);
  }
  view.add(shape.depth, row + 1, 1, shape.k);
  maps.push_back(view.make(op, op.getWeight(), Contract::kStepBytes));
  addRowMaps(op, shape, maps);
  return maps;
}

namespace {

//===----------------------------------------------------------------------===//
// sm90.contract
//===----------------------------------------------------------------------===//

/// Reason to decline the op that no config can remove; empty if there is none.
std::string declineContract(tile::ContractOp op) {
  if (std::string reason = declineQuant(op); !reason.empty())
    return reason;
  if (moe::QuantAttr quant = op.getResultQuantAttr();
      quant && op.getResultScale() &&
      moe::getScaleGroup(quant).columns != Contract::kQuantizedColumns)
    return "results are quantized in other than groups of " +
           number(Contract::kQuantizedColumns) +
           ", which are what a CTA has of a row; give a tile.quantize of the "
           "result";
  auto weight = cast<MemRefType>(op.getWeight().getType());
  auto result = cast<MemRefType>(op.getResult().getType());
  if (weight.getElementTypeBitWidth() > 16)
    return "no tensor core has the precision of f32; weights of 8 and 16 bits "
           "are taken";
  // Weights are copied by tensor maps, which take any strides that bind
  // accepts.
  for (auto [name, operand] :
       {std::pair<StringRef, Value>{"input", op.getInput()},
        {"result", op.getResult()}})
    if (!cast<MemRefType>(operand.getType()).getLayout().isIdentity())
      return ("the " + name +
              " has strides that are not known, and pieces of 16 bytes are "
              "copied")
          .str();
  bool fromRegisters = hasFragments(op.getWeightQuantAttr());
  bool hasBytes = result.getElementTypeBitWidth() == 8;
  if (op.quantizesResult() && !hasBytes && !fromRegisters)
    return "results are codes that are kept as bf16, which products of weights "
           "from registers make; give a tile.quantize of the result";
  if (fromRegisters && !weight.getLayout().isIdentity())
    return "the weights have strides that are not known, and pieces of them "
           "are copied";
  int64_t rowBytes =
      weight.getShape().back() * weight.getElementTypeBitWidth() / 8;
  if (!fromRegisters && rowBytes % Contract::kChunkBytes)
    return "a row of weights has " + number(rowBytes) +
           " bytes, and tensor maps go in multiples of 16";
  if (op.getLayout() && result.getDimSize(1) % Contract::kPairedRows)
    return "the result has " + number(result.getDimSize(1)) +
           " columns, and gate and up are copied by 8 columns";
  int64_t resultBytes =
      result.getDimSize(1) * result.getElementTypeBitWidth() / 8;
  if (result.getElementTypeBitWidth() == 16 &&
      resultBytes % Contract::kChunkBytes)
    return "a row of the result has " + number(resultBytes) +
           " bytes, and rows are copied in multiples of 16";
  if (hasBytes && result.getDimSize(1) % Contract::kQuantizedColumns)
    return "the result has " + number(result.getDimSize(1)) +
           " columns, and a CTA quantizes whole groups of " +
           number(Contract::kQuantizedColumns);
  return {};
}

std::string heightsIllegal(const Contract &shape) {
  if (shape.tileRows.empty())
    return "tile_rows = []; give at least one height";
  int64_t multiple = shape.sharesBlock() ? 16 : 8;
  int64_t most = shape.sharesBlock() ? 64 : Contract::kMaxHeight;
  std::string remedy =
      "; give multiples of " + number(multiple) + " up to " + number(most);
  if (shape.sharesBlock())
    remedy += " with tile_columns = " + number(shape.n);
  auto isOnM = [](int64_t height) {
    return height == Contract::kBlockRows ||
           height == Contract::kConsumers * Contract::kBlockRows;
  };
  if (shape.rowsOnM)
    remedy = "; give 64 or 128 as the highest with rows_on_m = true, and lower "
             "ones in multiples of 8";
  if (shape.compute == ComputeType::Int8 && !shape.sharesBlock())
    remedy += ", of int8 8, 24 or multiples of 16";
  for (int64_t height : shape.tileRows)
    if (height % multiple || height > most ||
        !shape.isWidth(shape.getProductWidth(height)) ||
        (shape.hasRowsOnM(height) && !isOnM(height)))
      return "tile_rows has " + number(height) + remedy;
  if (shape.rowsOnM && !isOnM(shape.getMaxHeight()))
    return "tile_rows up to " + number(shape.getMaxHeight()) + remedy;
  return {};
}

/// Reason why a gemm cannot multiply its weights from registers with this
/// shape; empty if it can.
std::string registersIllegal(const Contract &shape) {
  int64_t rows = shape.getWeightRows();
  if (rows != 128 && rows != 192 && rows != 256)
    return "tile_columns = " + number(shape.n) +
           (shape.weightsPerColumn == 2 ? "; give 64, 96 or 128"
                                        : "; give 128, 192 or 256") +
           ", for weights are multiplied from registers";
  constexpr int64_t unit = moe::Fragments::kDepth, maxUnits = 8;
  if (shape.rowsOnM)
    return "rows_on_m = true, but weights are multiplied from registers, which "
           "are on the side of 64; give false";
  if (shape.k < unit || shape.k % unit || shape.depth % shape.k ||
      shape.k > maxUnits * unit)
    return "step = " + number(shape.k) + "; give a multiple of " +
           number(unit) + " up to " + number(maxUnits * unit) +
           " that divides the " + number(shape.depth) + " contracted elements";
  return {};
}

/// Names the highest swapped tiles whose sums fit.
std::string describeHighest(Contract shape, int64_t maxAccumulators) {
  if (shape.rowsOnM)
    return {};
  constexpr int64_t multiple = 8;
  int64_t rows = shape.getMaxHeight();
  for (; rows > multiple && shape.getAccumulators() > maxAccumulators;
       shape.tileRows.assign({rows}))
    rows -= multiple;
  return ", as with tile_rows up to " + number(rows);
}

/// Reason why the consumers of a kernel cannot quantize the rows of its gemm;
/// empty if they can.
std::string declineQuantization(tile::QuantizeOp quantize,
                                tile::ContractOp contract,
                                const Contract &shape) {
  tile::ConfigAttr config = quantize.getConfigAttr();
  if (!isa_and_nonnull<tile::Sm80QuantizeAttr>(config) ||
      !sm80::Quantize(quantize, config).areHeld())
    return "a warp cannot hold a row of them, or its elements do not share a "
           "scale";
  if (!shape.isGrouped || contract.getSource() || !contract.takesAllGroups())
    return "the product does not take all rows that there are, in order";
  if (shape.copiesScales())
    return "the threads that copy the scales of rows do not wait for them";
  return {};
}

/// Reason why a kernel cannot begin with the quantization; empty if it can.
std::string quantizationIllegal(tile::QuantizeOp quantize,
                                tile::ContractOp contract,
                                const Contract &shape) {
  Value scale = quantize.getTensorScale() ? quantize.getTensorScale()
                                          : quantize.getScale();
  if (contract.getInput() != quantize.getQuantized() ||
      contract.getInputScale() != scale ||
      contract.getOffsets() != quantize.getOffsets())
    return "it reads other rows";
  return declineQuantization(quantize, contract, shape);
}

std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &target) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineContract(contract); !reason.empty())
    return reason;
  Contract shape(contract, config);
  int64_t rows = shape.getWeightRows();
  if (shape.rowsOnM && rows != 128 && rows != 256)
    return "tile_columns = " + number(shape.n) +
           " with rows_on_m = true; give " +
           (shape.weightsPerColumn == 2 ? "64 or 128" : "128 or 256");
  if (shape.quantizes && shape.n != Contract::kQuantizedColumns)
    return "tile_columns = " + number(shape.n) +
           ", but a CTA that quantizes has the columns of a group; give " +
           number(Contract::kQuantizedColumns);
  if (shape.fromRegisters) {
    if (std::string reason = registersIllegal(shape); !reason.empty())
      return reason;
  } else if (rows != 64 && rows != 128 && rows != 256)
    return "tile_columns = " + number(shape.n) +
           (shape.weightsPerColumn == 2 ? "; give 32, 64 or 128"
                                        : "; give 64, 128 or 256");
  if (std::string reason = heightsIllegal(shape); !reason.empty())
    return reason;
  if (!shape.fromRegisters && shape.getStepBytes() != Contract::kStepBytes)
    return "step = " + number(shape.k) + "; give " +
           number(Contract::kStepBytes * 8 / shape.inputBits);
  int64_t accumulators = shape.getAccumulators();
  int64_t maxAccumulators = ptxas::getMaxSums(shape.getPtxasShape());
  if (accumulators > maxAccumulators)
    return "tile_columns = " + number(shape.n) + ", tile_rows up to " +
           number(shape.getMaxHeight()) + " needs " + number(accumulators) +
           " accumulators per thread; give at most " + number(maxAccumulators) +
           describeHighest(shape, maxAccumulators);
  if (shape.mapRows && contract.getSource())
    return "map_rows = true, but rows come by 'source', which no map knows";
  if (shape.stages < Contract::kMinStages ||
      shape.stages > Contract::kMaxStages)
    return "stages = " + number(shape.stages) + "; give " +
           number(Contract::kMinStages) + " to " + number(Contract::kMaxStages);
  if (shape.hasQueue && !shape.isGrouped)
    return "queue = true without 'offsets'; only tiles of groups are queued";
  if (contract.getNumColumns() && shape.launchColumns % shape.n != 0)
    return "tile_columns = " + number(shape.n) + ", of which the " +
           number(shape.launchColumns) +
           " columns of a launch are no multiple; give one that divides them";
  if (contract.getTickets() && !shape.hasQueue)
    return "queue = false, but there are 'tickets'; give true, or no tickets";
  if (tile::QuantizeOp quantize = getQuantization(contract)) {
    std::string reason = quantizationIllegal(quantize, contract, shape);
    if (!reason.empty())
      return "its kernel cannot quantize its rows: " + reason;
  } else if (contract.getSignals() || contract.getAwaits()) {
    if (shape.hasQueue)
      return "queue = true of products that are one kernel, whose tiles have a "
             "fixed order";
    tile::ContractOp partner = getPartner(contract);
    if (!partner || partner->isBeforeInBlock(contract) !=
                        static_cast<bool>(contract.getAwaits()))
      return "of two products of a kernel the first one signals and the next "
             "one awaits that; run tile-rewrite-launches";
    tile::ConfigAttr others = partner.getConfigAttr();
    if (others && !isa<tile::Sm90ContractAttr>(others))
      return ("of two products of a kernel the other one has the schedule " +
              others.getSchedule() + "; give both sm90.contract")
          .str();
    if (std::optional<Contract> other = getPartnerShape(contract)) {
      std::string reason = contract.getSignals() ? shape.whyApart(*other)
                                                 : other->whyApart(shape);
      if (!reason.empty())
        return "of two products of a kernel " + reason;
      shape.shareMemoryWith(*other);
    }
  }
  if (shape.getSharedBytes() > target.getSharedBytes())
    return "stages = " + number(shape.stages) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " +
           number(target.getSharedBytes());
  return {};
}

/// `QuantizesInputs::whyApart`.
std::string whyQuantizedApart(tile::QuantizeOp quantize,
                              tile::ContractOp contract, tile::LoadAttr load) {
  if (contract.getSignals() || contract.getAwaits())
    return "another product of its kernel waits for it, or it for that";
  Contract shape(contract, contract.getConfigAttr());
  // As if all tiles had the least BLOCK_M.
  auto rows = int64_t(load.getMaxTokens() * load.getTopK());
  int64_t tiles = rows / Contract::kHeightUnit + shape.groups;
  constexpr int64_t most = (int64_t(1) << 32) / Contract::kTicket;
  if (tiles * shape.getPanels() >= most)
    return "there may be more tiles than its counter counts beside CTAs";
  return declineQuantization(quantize, contract, shape);
}

/// Persistent: one CTA per SM takes tiles until none is left. Only the device
/// knows how many rows a group has.
moert::Expr contractGrid(Operation *op, tile::ConfigAttr config,
                         const Target &target) {
  Contract shape(cast<tile::ContractOp>(op), config);
  moert::Expr most(target.getMultiprocessors());
  if (shape.isGrouped)
    return most;
  return moert::Expr::min(
      rowBlocks(shape.getMaxHeight()) * moert::Expr(shape.getPanels()), most);
}

int64_t contractBlock(Operation *op, tile::ConfigAttr config) {
  return Contract(cast<tile::ContractOp>(op), config).getThreads();
}

int64_t contractShared(Operation *op, tile::ConfigAttr config) {
  return getShapeInKernel(cast<tile::ContractOp>(op), config).getSharedBytes();
}

SmallVector<tile::TensorMapAttr> contractMaps(Operation *op,
                                              tile::ConfigAttr config) {
  auto contract = cast<tile::ContractOp>(op);
  return getTensorMaps(contract, Contract(contract, config));
}

struct ContractSchedule final
    : ScheduleWith<Schedule, ModelsTime, CountsIds, CutsColumns, JoinsProducts,
                   QuantizesInputs, RunsPhases, PermutesRows, SplitsLargeGroups,
                   KnowsSpills> {
  ContractSchedule() : ScheduleWith("sm90.contract", "tile.contract") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return contractIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return sm90::chooseContract(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return contractGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return contractBlock(op, config);
  }
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return contractShared(op, config);
  }
  SmallVector<tile::TensorMapAttr>
  tensorMaps(Operation *op, tile::ConfigAttr config) const override {
    return contractMaps(op, config);
  }
  std::vector<Candidate> candidates(Operation *op, tile::LoadAttr load,
                                    const Target &target) const override {
    return sm90::getContractCandidates(op, load, target);
  }
  std::unique_ptr<CostModel> costModel(Operation *op, tile::LoadAttr load,
                                       const Target &target) const override {
    return sm90::makeContractCost(op, load, target);
  }
  std::pair<int64_t, int64_t>
  getTile(tile::ConfigAttr candidate) const override {
    return sm90::getLargestTile(candidate);
  }
  std::string whySpills(Operation *op, tile::ConfigAttr config) const override {
    return sm90::whySpills(op, config);
  }
  double predictSaved(int64_t ids, const DeviceRates &device) const override {
    return sm90::predictCounting(ids, device);
  }
  std::optional<JoinedConfigs> join(tile::ContractOp first,
                                    tile::ContractOp second,
                                    tile::LoadAttr load, bool areFixed,
                                    const Target &target) const override {
    return joinContracts(first, second, load, areFixed, target);
  }
  std::string whyApart(tile::QuantizeOp quantize, tile::ContractOp product,
                       tile::LoadAttr load) const override {
    return whyQuantizedApart(quantize, product, load);
  }
  Operation *findRunner(Operation *before, Operation *phase) const override {
    if (!cast<tile::ContractOp>(phase).getAwaits())
      return nullptr;
    // The first of two joined gemms runs both; a gemm quantizes its rows.
    if (isa<tile::ContractOp>(before))
      return before;
    return isa<tile::QuantizeOp>(before) ? phase : nullptr;
  }
  tile::ConfigAttr withMaps(tile::ConfigAttr config) const override {
    return config.withMapRows(true);
  }
  bool hasMaps(tile::ConfigAttr config) const override {
    return config.getMapRows();
  }
  int64_t getColumnMultiple(tile::ConfigAttr config) const override {
    return cast<tile::Sm90ContractAttr>(config).getTileColumns();
  }
  int64_t getLargeGroupRows(tile::ContractOp product,
                            tile::LoadAttr load) const override {
    return sm90::getLargeGroupRows(product, load);
  }
  tile::ConfigAttr chooseLargeGroups(tile::ContractOp product,
                                     tile::ContractOp large,
                                     tile::LoadAttr load,
                                     const Target &target) const override {
    return chooseLargeGroupsContract(product, large, load, target);
  }
};

/// Weight prepacking. A CTA reorders a block of 64 rows: it reads all of them
/// before it writes, because the output may alias them.
struct RepackSchedule final : Schedule {
  RepackSchedule() : Schedule("sm90.repack", "tile.repack") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    constexpr int64_t most = 1024;
    int64_t threads = block(op, config);
    if (threads < moe::Fragments::kRows || threads % 32 || threads > most)
      return "threads = " + number(threads) + "; give a multiple of 32 from " +
             number(moe::Fragments::kRows) + " to " + number(most);
    if (shared(op, config) > target.getSharedBytes())
      return "a block of rows has " + number(shared(op, config)) +
             " bytes, and shared memory " + number(target.getSharedBytes());
    return {};
  }
  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t threads = 512;
    return tile::Sm90RepackAttr::get(op->getContext(), threads);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr,
                   const Target &) const override {
    auto scale = cast<tile::RepackOp>(op).getRowScale().getType();
    return cast<MemRefType>(scale).getNumElements() / moe::Fragments::kRows;
  }
  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::Sm90RepackAttr>(config).getThreads();
  }
  int64_t shared(Operation *op, tile::ConfigAttr) const override {
    return Repack(cast<tile::RepackOp>(op)).getSharedBytes();
  }
};

/// Where both schedules could run, the cost model chooses.
struct ModelledGemvSchedule final
    : ScheduleWith<sm80::GemvSchedule, ModelsTime> {
  std::vector<Candidate> candidates(Operation *op, tile::LoadAttr load,
                                    const Target &target) const override {
    return sm90::getContractCandidates(op, load, target);
  }
  std::unique_ptr<CostModel> costModel(Operation *op, tile::LoadAttr load,
                                       const Target &target) const override {
    return sm90::makeContractCost(op, load, target);
  }
  std::pair<int64_t, int64_t>
  getTile(tile::ConfigAttr candidate) const override {
    return sm90::getLargestTile(candidate);
  }
};

} // namespace

const Schedule &moec::getSm90ContractSchedule() {
  return getOnly<ContractSchedule>();
}
const Schedule &moec::getSm90RepackSchedule() {
  return getOnly<RepackSchedule>();
}
const Schedule &moec::getSm90GemvSchedule() {
  return getOnly<ModelledGemvSchedule>();
}
