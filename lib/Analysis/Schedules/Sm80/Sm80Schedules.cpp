//===- Sm80Schedules.cpp - ways to run a phase on every GPU -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"
#include "Gemv.h"
#include "Sm80Copies.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace mlir;
using namespace moec;
using namespace moec::sm80;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t sm80::getVectorLanes(MemRefType result) {
  int64_t lanes = 16 / (result.getElementTypeBitWidth() / 8);
  while (result.getDimSize(1) % lanes)
    lanes /= 2;
  return lanes;
}

/// Whether each of the `n` columns of a CTA and projection has its own weight
/// scale.
static bool haveOwnScales(tile::ContractOp op, int64_t n) {
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

Contract::Contract(tile::ContractOp op, tile::ConfigAttr attr)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      weightsPerColumn(op.getLayout() ? 2 : 1), compute(getDecodedType(op)),
      scales(op) {
  auto weightType = cast<MemRefType>(op.getWeight().getType());
  auto inputType = cast<MemRefType>(op.getInput().getType());
  groups = isGrouped ? weightType.getDimSize(0) : 1;
  depth = inputType.getShape().back();
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto config = cast<tile::Sm80ContractAttr>(attr);
  m = config.getTileRows();
  n = config.getTileColumns();
  k = config.getStep();
  lanes = config.getVectorWidth();
  input = {getStorageBits(op.getInput(), op.getInputQuantAttr()), depth, k};
  weight = {getStorageBits(op.getWeight(), op.getWeightQuantAttr()), depth, k};
  partDepth = k;
  for (moe::QuantAttr quant : {op.getInputQuantAttr(), op.getWeightQuantAttr()})
    if (getScaleTime(quant) == ScaleTime::InLoop)
      partDepth = std::gcd(partDepth, moe::getScaleGroup(quant).columns);
  hasColumnScales = scales.weight == ScaleTime::InLoop && haveOwnScales(op, n);
  hasMinima = op.getWeightQuant() && op.getWeightQuantAttr().getMinimum();
  hasElementFactors = scales.weight == ScaleTime::OnElements ||
                      (op.getWeightZeroPoint() && !hasMinima);
}

int64_t Contract::getSharedBytes() const {
  int64_t sums = weightsPerColumn * m * getSumStride() * 4;
  return std::max(kStages * getStageBytes(), sums);
}

Quantize::Quantize(tile::QuantizeOp op, tile::ConfigAttr config)
    : columns(cast<MemRefType>(op.getInput().getType()).getDimSize(1)),
      lanes(cast<tile::Sm80QuantizeAttr>(config).getVectorWidth()),
      panel(cast<tile::Sm80QuantizeAttr>(config).getElementsPerCta()),
      size(moe::getScaleGroup(op.getQuant()).columns) {}

namespace {

//===----------------------------------------------------------------------===//
// sm80.contract
//===----------------------------------------------------------------------===//

/// Maximum shared memory of a CTA on every architecture from sm_80 on.
constexpr int64_t kMaxSharedBytes = 99 * 1024;

std::string needsLanes(int64_t lanes, MemRefType result) {
  int64_t most = getVectorLanes(result);
  if (lanes > 0 && most % lanes == 0)
    return {};
  return "vector_width = " + number(lanes) + "; give a divisor of " +
         number(most);
}

/// Reason to decline the op that no config can remove; empty if there is none.
std::string declineContract(tile::ContractOp op) {
  if (std::string reason = declineQuantized(op); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(op); !reason.empty())
    return reason;
  constexpr StringLiteral otherwise = "quantized otherwise than is decoded: ";
  if (!isInputDecodedOnGpu(op.getInputQuantAttr()))
    return ("the input is " + otherwise + describeInputDecodedOnGpu()).str();
  if (!isWeightDecodedOnGpu(op.getWeightQuantAttr()))
    return ("the weight is " + otherwise + describeWeightDecodedOnGpu()).str();
  int64_t depth = cast<MemRefType>(op.getInput().getType()).getShape().back();
  if (getStorageBits(op.getWeight(), op.getWeightQuantAttr()) == 4 &&
      depth % kDecodedColumns)
    return "a row has " + number(depth) +
           " elements of 4 bits; give a multiple of " + number(kDecodedColumns);
  return {};
}

/// Whether a k tile has `bytes` of a row of the wider operand. Next to f32,
/// 4-bit elements need more, so that threads still have chunks of the narrow
/// operand to copy.
static bool isStepBytes(const Contract &shape, int64_t bytes) {
  if (shape.weight.bits == 4 && shape.input.bits == 32)
    return bytes == 256;
  return bytes == 64 || bytes == 128;
}

/// Reason why BLOCK_K does not suit the operands; empty if it does.
std::string stepIllegal(const Contract &shape) {
  int64_t rowBytes =
      std::max(shape.input.getBytes(shape.k), shape.weight.getBytes(shape.k));
  if (!isStepBytes(shape, rowBytes))
    return "step = " + number(shape.k) + " is " + number(rowBytes) +
           " bytes of a row; give " +
           (isStepBytes(shape, 64) ? "64 or 128 bytes" : "256 bytes");
  for (auto [field, value, rows] :
       {std::tuple("tile_rows", shape.m, shape.input),
        std::tuple("tile_columns", shape.n, shape.weight)})
    if (value % rows.getRowsPerCopy())
      return std::string(field) + " = " + number(value) +
             " with step = " + number(shape.k) + "; give a multiple of the " +
             number(rows.getRowsPerCopy()) + " rows that are copied at a time";
  if (shape.k % kDecodedColumns && shape.input.bits != shape.weight.bits)
    return "step = " + number(shape.k) + "; give a multiple of the " +
           number(kDecodedColumns) + " elements that are decoded at once";
  return {};
}

std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineContract(contract); !reason.empty())
    return reason;
  Contract shape(contract, config);
  auto result = cast<MemRefType>(contract.getResult().getType());
  for (auto [field, value] :
       {std::pair<StringRef, int64_t>{"tile_rows", shape.m},
        {"tile_columns", shape.n}})
    if (value <= 0 || value % 32)
      return (field + " = " + Twine(value) + "; give a multiple of 32").str();
  if (shape.k <= 0)
    return needsPositive("step", shape.k);
  if (std::string reason = stepIllegal(shape); !reason.empty())
    return reason;
  if (std::string reason = needsLanes(shape.lanes, result); !reason.empty())
    return reason;
  int64_t sums = shape.getAccumulators();
  if (sums > shape.getMaxAccumulators())
    return "tile_rows = " + number(shape.m) +
           ", tile_columns = " + number(shape.n) + " needs " + number(sums) +
           " accumulators per thread; give at most " +
           number(shape.getMaxAccumulators());
  if (shape.getSharedBytes() > kMaxSharedBytes)
    return "tile_rows = " + number(shape.m) +
           ", tile_columns = " + number(shape.n) +
           ", step = " + number(shape.k) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " + number(kMaxSharedBytes);
  return {};
}

/// Whether scales of columns and minima of all parts of a k tile, which ptxas
/// loads together, leave too few registers beside two decoded operands;
/// GpuFormats.FitInRegisters assembles such kernels.
bool hasManyFactors(tile::ContractOp op, const Contract &shape) {
  constexpr int64_t most = 2, byteBits = 8;
  return op.getInputQuant() && shape.hasColumnScales &&
         (shape.hasMinima || shape.weight.bits == byteBits) &&
         shape.getParts() > most;
}

/// Gemms with few columns, such as a router's, have few CTAs and so get narrow
/// tiles, unless weights of few bits are decoded next to f32: then the threads
/// would not have a chunk each to copy.
tile::ConfigAttr chooseContract(Operation *op, const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  auto result = cast<MemRefType>(contract.getResult().getType());
  int64_t inputBits =
      getStorageBits(contract.getInput(), contract.getInputQuantAttr());
  int64_t weightBits =
      getStorageBits(contract.getWeight(), contract.getWeightQuantAttr());
  int64_t bits = std::max(inputBits, weightBits);
  constexpr int64_t fewColumns = 1024;
  bool isNarrow = result.getDimSize(1) <= fewColumns &&
                  !contract.getOffsets() && weightBits * 4 > bits;
  bool isPlainF32 = inputBits == weightBits && bits > 16;
  int64_t rowBytes = isPlainF32 ? 64 : weightBits * 8 == bits ? 256 : 128;
  int64_t columns = isNarrow ? 32 : 64;
  auto make = [&](int64_t m) {
    return tile::Sm80ContractAttr::get(
        op->getContext(), /*tile_rows=*/m, /*tile_columns=*/columns,
        rowBytes * 8 / bits, getVectorLanes(result));
  };
  constexpr int64_t most = 64, fewer = 32;
  if (!isNarrow && hasManyFactors(contract, Contract(contract, make(most)))) {
    rowBytes /= 2;
    if (Contract(contract, make(most)).partDepth < kDecodedColumns)
      columns = 32;
  }
  Contract shape(contract, make(most));
  bool fits = shape.getAccumulators() <= shape.getMaxAccumulators();
  return make(fits ? most : fewer);
}

moert::Expr contractGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  Contract shape(cast<tile::ContractOp>(op), config);
  return tileBlocks(shape.isGrouped, shape.groups, shape.m, shape.getPanels());
}

int64_t contractBlock(Operation *, tile::ConfigAttr) {
  return Contract::kThreads;
}

int64_t contractShared(Operation *op, tile::ConfigAttr config) {
  return Contract(cast<tile::ContractOp>(op), config).getSharedBytes();
}

//===----------------------------------------------------------------------===//
// sm80.row_map, sm80.gather_reduce: a CTA has columns of a token, or of every
// `token_stride`-th one, a thread a vector of them
//===----------------------------------------------------------------------===//

MemRefType getResultType(Operation *op) {
  if (auto map = dyn_cast<tile::RowMapOp>(op))
    return cast<MemRefType>(map.getResult().getType());
  return cast<MemRefType>(cast<tile::GatherReduceOp>(op).getResult().getType());
}

/// Common to both: columns per CTA and per thread.
struct Columns {
  explicit Columns(tile::ConfigAttr attr) {
    llvm::TypeSwitch<Attribute>(attr)
        .Case<tile::Sm80RowMapAttr, tile::Sm80GatherReduceAttr>(
            [&](auto config) {
              perCta = config.getColumnsPerCta();
              perThread = config.getVectorWidth();
            });
  }

  int64_t perCta = 0, perThread = 0;
};

std::string columnsIllegal(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  Columns columns(config);
  if (std::string reason = needsLanes(columns.perThread, getResultType(op));
      !reason.empty())
    return reason;
  constexpr int64_t maxThreads = 1024;
  int64_t step = kWarp * columns.perThread;
  if (columns.perCta > 0 && columns.perCta % step == 0 &&
      columns.perCta / columns.perThread <= maxThreads)
    return {};
  return "columns_per_cta = " + number(columns.perCta) +
         "; give a multiple of " + number(step) + " up to " +
         number(maxThreads * columns.perThread);
}

int64_t getTokenStride(tile::ConfigAttr config) {
  return cast<tile::Sm80GatherReduceAttr>(config).getTokenStride();
}

std::string gatherReduceIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &target) {
  if (getTokenStride(config) <= 0)
    return "token_stride = " + number(getTokenStride(config)) +
           "; give 1 or more tokens at a time";
  return columnsIllegal(op, config, target);
}

int64_t choosePanel(Operation *op) {
  constexpr int64_t maxThreads = 128;
  MemRefType result = getResultType(op);
  int64_t lanes = getVectorLanes(result);
  return std::min<int64_t>(llvm::alignTo(result.getDimSize(1) / lanes, kWarp),
                           maxThreads) *
         lanes;
}

int64_t getPanels(Operation *op, int64_t panel) {
  return llvm::divideCeil(getResultType(op).getDimSize(1), panel);
}

tile::ConfigAttr chooseRowMap(Operation *op, const Target &) {
  return tile::Sm80RowMapAttr::get(op->getContext(), choosePanel(op),
                                   getVectorLanes(getResultType(op)));
}

/// CTAs for several times as many as fit at once, so that they end together;
/// with many tokens each takes several.
tile::ConfigAttr chooseGatherReduce(Operation *op, const Target &) {
  constexpr int64_t ctas = 8192;
  int64_t panel = choosePanel(op);
  return tile::Sm80GatherReduceAttr::get(
      op->getContext(), panel, getVectorLanes(getResultType(op)),
      llvm::divideCeil(ctas, getPanels(op, panel)));
}

moert::Expr columnsGrid(Operation *op, tile::ConfigAttr config,
                        const Target &) {
  return moert::Expr::tokens() *
         moert::Expr(getPanels(op, Columns(config).perCta));
}

moert::Expr gatherReduceGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  return moert::Expr::min(moert::Expr::tokens(), getTokenStride(config)) *
         moert::Expr(getPanels(op, Columns(config).perCta));
}

int64_t columnsBlock(Operation *, tile::ConfigAttr config) {
  Columns columns(config);
  return columns.perCta / columns.perThread;
}

//===----------------------------------------------------------------------===//
// sm80.quantize
//===----------------------------------------------------------------------===//

std::string quantizeIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  auto input = cast<MemRefType>(quantize.getInput().getType());
  Quantize shape(quantize, config);
  if (!shape.areRows() && !areSharedByLanes(shape.size))
    return "scales are of other than 32, 64 or 128 neighbours, which a part of "
           "a warp quantizes, or whole rows";
  if (std::string reason = needsLanes(shape.lanes, input); !reason.empty())
    return reason;
  if (shape.areRows()) {
    int64_t atOnce = Quantize::kThreads * shape.lanes;
    return shape.panel == atOnce
               ? std::string()
               : "elements_per_cta = " + number(shape.panel) +
                     " of whole rows; give the " + number(atOnce) +
                     " elements that threads take at once";
  }
  int64_t step = shape.getGroupsAtOnce() * shape.size;
  constexpr int64_t maxSteps = 8;
  if (shape.panel > 0 && shape.panel % step == 0 &&
      shape.panel <= maxSteps * step)
    return {};
  return "elements_per_cta = " + number(shape.panel) + "; give a multiple of " +
         number(step) + " up to " + number(maxSteps * step);
}

/// Four vectors per thread: as much in flight as memory needs, and few CTAs.
/// With whole rows a thread processes as many in sequence.
tile::ConfigAttr chooseQuantize(Operation *op, const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  constexpr int64_t vectors = 4;
  int64_t lanes =
      getVectorLanes(cast<MemRefType>(quantize.getInput().getType()));
  auto makePanel = [&](int64_t panel) {
    return tile::Sm80QuantizeAttr::get(op->getContext(), panel, lanes);
  };
  Quantize shape(quantize, makePanel(0));
  if (shape.areRows())
    return makePanel(Quantize::kThreads * lanes);
  int64_t steps = std::max<int64_t>(vectors / shape.getVectors(), 1);
  return makePanel(steps * shape.getGroupsAtOnce() * shape.size);
}

/// At most as many CTAs as fit at once: one of several ranks has only few of
/// the possible rows, and CTAs without rows take time too.
moert::Expr quantizeGrid(Operation *op, tile::ConfigAttr config,
                         const Target &target) {
  auto quantize = cast<tile::QuantizeOp>(op);
  Quantize shape(quantize, config);
  int64_t rowsPerToken = quantize.getTopK().value_or(1);
  moert::Expr tokens = moert::Expr::tokens();
  int64_t groups = 1, atOnce = 1;
  if (shape.areHeld()) {
    atOnce = Quantize::kThreads / kWarp;
  } else if (!shape.areRows()) {
    groups = shape.getRowGroups();
    atOnce = shape.getCtaGroups();
  }
  moert::Expr all = tokens * moert::Expr(rowsPerToken * groups);
  if (atOnce > 1)
    all = moert::Expr::ceilDiv(all, atOnce);
  constexpr int64_t perMultiprocessor = 16;
  int64_t most = perMultiprocessor * target.getMultiprocessors();
  return most ? moert::Expr::min(all, most) : all;
}

int64_t quantizeBlock(Operation *, tile::ConfigAttr) {
  return Quantize::kThreads;
}

//===----------------------------------------------------------------------===//
// sm80.gather_rows
//===----------------------------------------------------------------------===//

int64_t getGatherWarps(tile::ConfigAttr config) {
  return cast<tile::Sm80GatherRowsAttr>(config).getWarps();
}

std::string gatherRowsIllegal(Operation *, tile::ConfigAttr config,
                              const Target &) {
  constexpr int64_t maxWarps = 32;
  if (getGatherWarps(config) > 0 && getGatherWarps(config) <= maxWarps)
    return {};
  return "warps = " + number(getGatherWarps(config)) + "; give 1 to " +
         number(maxWarps);
}

tile::ConfigAttr chooseGatherRows(Operation *op, const Target &) {
  constexpr int64_t warps = 8;
  return tile::Sm80GatherRowsAttr::get(op->getContext(), warps);
}

moert::Expr gatherRowsGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::GatherRowsOp>(op).getTopK().value_or(1),
                        getGatherWarps(config));
}

int64_t gatherRowsBlock(Operation *, tile::ConfigAttr config) {
  return getGatherWarps(config) * kWarp;
}

//===----------------------------------------------------------------------===//
// sm80.place_ids
//===----------------------------------------------------------------------===//

int64_t getSlotsPerCta(tile::ConfigAttr config) {
  return cast<tile::Sm80PlaceIdsAttr>(config).getSlotsPerCta();
}

std::string placeIdsIllegal(Operation *, tile::ConfigAttr config,
                            const Target &) {
  constexpr int64_t maxThreads = 1024;
  int64_t slots = getSlotsPerCta(config);
  if (slots > 0 && slots <= maxThreads && slots % kWarp == 0)
    return {};
  return "slots_per_cta = " + number(slots) + "; give a multiple of " +
         number(kWarp) + " up to " + number(maxThreads);
}

tile::ConfigAttr choosePlaceIds(Operation *op, const Target &) {
  constexpr int64_t slots = 256;
  return tile::Sm80PlaceIdsAttr::get(op->getContext(), slots);
}

moert::Expr placeIdsGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  auto ids = cast<tile::PlaceIdsOp>(op).getIds();
  return positionBlocks(cast<MemRefType>(ids.getType()).getDimSize(1),
                        getSlotsPerCta(config));
}

int64_t placeIdsBlock(Operation *, tile::ConfigAttr config) {
  return getSlotsPerCta(config);
}

struct ContractSchedule final
    : ScheduleOf<contractIllegal, chooseContract, contractGrid, contractBlock> {
  ContractSchedule() : ScheduleOf("sm80.contract", "tile.contract") {}
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return contractShared(op, config);
  }
};

struct PlaceIdsSchedule final
    : ScheduleOf<placeIdsIllegal, choosePlaceIds, placeIdsGrid, placeIdsBlock> {
  PlaceIdsSchedule() : ScheduleOf("sm80.place_ids", "tile.place_ids") {}
};

struct RowMapSchedule final
    : ScheduleOf<columnsIllegal, chooseRowMap, columnsGrid, columnsBlock> {
  RowMapSchedule() : ScheduleOf("sm80.row_map", "tile.row_map") {}
};

/// One CTA, because maxima of several would need another reduction.
struct TensorScaleSchedule final : Schedule {
  TensorScaleSchedule() : Schedule("sm80.tensor_scale", "tile.tensor_scale") {}
  static MemRefType getInput(Operation *op) {
    return cast<MemRefType>(cast<tile::TensorScaleOp>(op).getInput().getType());
  }
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &) const override {
    return needsLanes(cast<tile::Sm80TensorScaleAttr>(config).getVectorWidth(),
                      getInput(op));
  }
  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::Sm80TensorScaleAttr::get(op->getContext(),
                                          getVectorLanes(getInput(op)));
  }
  moert::Expr grid(Operation *, tile::ConfigAttr,
                   const Target &) const override {
    return 1;
  }
  int64_t block(Operation *, tile::ConfigAttr) const override { return 1024; }
};

struct QuantizeSchedule final
    : ScheduleWith<ScheduleOf<quantizeIllegal, chooseQuantize, quantizeGrid,
                              quantizeBlock>,
                   PredictsTime> {
  QuantizeSchedule() : ScheduleWith("sm80.quantize", "tile.quantize") {}
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictQuantize(cast<tile::QuantizeOp>(op), load, tokens, routing,
                           device);
  }
};

struct GatherRowsSchedule final
    : ScheduleWith<ScheduleOf<gatherRowsIllegal, chooseGatherRows,
                              gatherRowsGrid, gatherRowsBlock>,
                   PredictsTime> {
  GatherRowsSchedule() : ScheduleWith("sm80.gather_rows", "tile.gather_rows") {}
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictGatherRows(cast<tile::GatherRowsOp>(op), load, tokens,
                             routing, device);
  }
};

struct GatherReduceSchedule final
    : ScheduleOf<gatherReduceIllegal, chooseGatherReduce, gatherReduceGrid,
                 columnsBlock> {
  GatherReduceSchedule()
      : ScheduleOf("sm80.gather_reduce", "tile.gather_reduce") {}
};

} // namespace

const Schedule &moec::getSm80ContractSchedule() {
  return getOnly<ContractSchedule>();
}
const Schedule &moec::getSm80GemvSchedule() { return getOnly<GemvSchedule>(); }
const Schedule &moec::getSm80PlaceIdsSchedule() {
  return getOnly<PlaceIdsSchedule>();
}
const Schedule &moec::getSm80RowMapSchedule() {
  return getOnly<RowMapSchedule>();
}
const Schedule &moec::getSm80TensorScaleSchedule() {
  return getOnly<TensorScaleSchedule>();
}
const Schedule &moec::getSm80QuantizeSchedule() {
  return getOnly<QuantizeSchedule>();
}
const Schedule &moec::getSm80GatherRowsSchedule() {
  return getOnly<GatherRowsSchedule>();
}
const Schedule &moec::getSm80GatherReduceSchedule() {
  return getOnly<GatherReduceSchedule>();
}
