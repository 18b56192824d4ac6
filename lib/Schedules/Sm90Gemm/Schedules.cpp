//===- Schedules.cpp - ways to run a phase on Hopper GPUs -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidates.h"
#include "Cost.h"
#include "Join.h"
#include "LargeGroups.h"
#include "Schedules/Gemv/Choice.h"
#include "Schedules/Interface/ScheduleTables.h"
#include "Schedules/Quantize/Shape.h"
#include "Shape.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Schedules/Rewrites/AppendAdapters.h"
#include "moec/Schedules/Rewrites/AwaitRows.h"
#include "moec/Schedules/Rewrites/CountIds.h"
#include "moec/Schedules/Rewrites/FollowPhase.h"
#include "moec/Schedules/Rewrites/JoinRouting.h"
#include "moec/Schedules/Rewrites/JoinSums.h"
#include "moec/Schedules/Rewrites/MulticastWeights.h"
#include "moec/Schedules/Rewrites/PermuteRows.h"
#include "moec/Schedules/Rewrites/QuantizeInputs.h"
#include "moec/Schedules/Rewrites/QuantizeRows.h"
#include "moec/Schedules/Rewrites/RunPhases.h"
#include "moec/Schedules/Rewrites/SplitColumns.h"
#include "moec/Schedules/Spills.h"
#include "moec/Schedules/SumOrder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

Prepack::Prepack(tile::PrepackOp op) {
  auto type = cast<MemRefType>(op.getWeight().getType());
  rows = type.getShape().end()[-2];
  sizeK = moe::getRowWidth(op.getQuant(), type.getShape().back());
  storageBits = moe::getStorageBits(op.getQuant());
  // Per row; with 64 rows the rest of shared memory holds everything else.
  constexpr int64_t maxBytes = 3584;
  int64_t parts = llvm::divideCeil(getWeightRowBytes(), maxBytes);
  partTiles = llvm::divideCeil(getPackedTiles(), parts);
  // A part has whole copies of scales.
  moe::PrepackedFormat format(
      moe::getPrepacked(op.getQuant(), op.getPacking()));
  partTiles = int64_t(llvm::alignTo(partTiles, format.scaleTiles));
}

std::string sm90::declineQuant(tile::GemmOp op) {
  moe::QuantAttr input = op.getInputQuantAttr();
  moe::QuantAttr weight = op.getWeightQuantAttr();
  int64_t sizeK = cast<MemRefType>(op.getInput().getType()).getDimSize(1);
  if ((!input && !weight) || areNativeProducts(input, weight, sizeK) ||
      (isScaledByRow(input) && hasPrepackedLayout(weight)))
    return {};
  std::string reason =
      "tensor cores multiply " + describeNativeProducts() +
      ", or inputs of 16 bits, or of f8E4M3FN by row, with prepacked weights; "
      "sm80.gemm dequantizes other operands";
  std::optional<moe::Packing> packing = moe::getPrepacking(
      cast<MemRefType>(op.getInput().getType()).getElementType());
  if (weight && packing) {
    if (std::string whyNot = moe::whyNotPrepacked(weight, *packing);
        !whyNot.empty())
      reason += "; these weights cannot be prepacked: " + whyNot;
  }
  return reason;
}

namespace {

//===----------------------------------------------------------------------===//
// sm90.gemm
//===----------------------------------------------------------------------===//

/// Reason why no thread can quantize rows of the op that it copies; empty if
/// threads can.
std::string declineQuantizedRows(tile::GemmOp op) {
  moe::QuantAttr quant = op.getInputQuantAttr();
  if (hasPrepackedLayout(op.getWeightQuantAttr()))
    return "with prepacked weights a k tile has several swizzle rows, which "
           "are copied as they are";
  if (quant.getGranularity() != moe::Granularity::Tensor &&
      moe::getScaleGroup(quant).columns != kQuantizedColumns)
    return "rows that are quantized as they are copied need a given scale or "
           "scales of " +
           number(kQuantizedColumns) + " elements, those of a k tile";
  return {};
}

/// Reason to decline the op that no config can remove; empty if there is none.
std::string declineGemm(tile::GemmOp op) {
  if (std::string reason = declineQuant(op); !reason.empty())
    return reason;
  if (moe::QuantAttr quant = op.getResultQuantAttr();
      quant && op.getResultScale() &&
      moe::getScaleGroup(quant).columns != kQuantizedColumns)
    return "results must be quantized in groups of " +
           number(kQuantizedColumns) +
           ", the columns of a CTA's tile; use a tile.quantize of the result";
  if (std::string reason = declineAdapters(op); !reason.empty())
    return reason;
  if (op.getQuantizesInput())
    if (std::string reason = declineQuantizedRows(op); !reason.empty())
      return reason + "; remove 'quantizes_input', and quantize by a "
                      "tile.quantize";
  auto weight = cast<MemRefType>(op.getWeight().getType());
  auto result = cast<MemRefType>(op.getResult().getType());
  if (weight.getElementTypeBitWidth() > 16)
    return "tensor cores do not multiply f32 exactly; weights must have 8 or "
           "16 bits";
  // Weights are copied by tensor maps, which take any strides that bind
  // accepts.
  for (auto [name, operand] :
       {std::pair<StringRef, Value>{"input", op.getInput()},
        {"result", op.getResult()}})
    if (!cast<MemRefType>(operand.getType()).getLayout().isIdentity())
      return ("the " + name +
              " has dynamic strides, but it is copied in chunks of 16 bytes")
          .str();
  bool fromRegisters = hasPrepackedLayout(op.getWeightQuantAttr());
  bool hasBytes = result.getElementTypeBitWidth() == 8;
  if (op.quantizesResult() && !hasBytes && !fromRegisters)
    return "only gemms with prepacked weights quantize results with 'packing = "
           "bf16'; use a tile.quantize of the result";
  if (fromRegisters && !weight.getLayout().isIdentity())
    return "the prepacked weights have dynamic strides, but they are copied in "
           "contiguous chunks";
  int64_t rowBytes =
      weight.getShape().back() * weight.getElementTypeBitWidth() / 8;
  if (!fromRegisters && rowBytes % kChunkBytes)
    return "a row of weights has " + number(rowBytes) +
           " bytes, but tensor maps need a multiple of 16";
  if (op.getLayout() && result.getDimSize(1) % kPairedRows)
    return "the result has " + number(result.getDimSize(1)) +
           " columns, but gate and up rows are copied 8 at a time";
  int64_t resultBytes =
      result.getDimSize(1) * result.getElementTypeBitWidth() / 8;
  if (result.getElementTypeBitWidth() == 16 && resultBytes % kChunkBytes)
    return "a row of the result has " + number(resultBytes) +
           " bytes, but rows are copied in multiples of 16";
  if (hasBytes && result.getDimSize(1) % kQuantizedColumns)
    return "the result has " + number(result.getDimSize(1)) +
           " columns, but a CTA quantizes whole groups of " +
           number(kQuantizedColumns);
  return {};
}

/// Whether wgmma has an N of that width: multiples of 8; for int8, above 24,
/// only multiples of 16.
bool isWidth(int64_t width, ComputeType compute) {
  constexpr int64_t multiple = 16, few = 24;
  return compute != ComputeType::Int8 || width <= few || width % multiple == 0;
}

std::string blockMIllegal(const GemmProblem &problem, const TileShape &tile) {
  if (tile.blockM.empty())
    return "block_m = []; give at least one value";
  int64_t multiple = tile.sharesBlock() ? 16 : 8;
  int64_t most = tile.sharesBlock() ? 64 : kMaxBlockM;
  std::string remedy =
      "; give multiples of " + number(multiple) + " up to " + number(most);
  if (tile.sharesBlock())
    remedy += " with block_n = " + number(tile.blockN);
  auto isOnM = [](int64_t blockM) {
    return blockM == kBlockRows || blockM == kConsumers * kBlockRows;
  };
  if (tile.noSwapAB)
    remedy = "; with no_swap_ab = true, give 64 or 128 as the largest and "
             "multiples of 8 below";
  if (problem.compute == ComputeType::Int8 && !tile.sharesBlock())
    remedy += ", for int8 8, 24 or multiples of 16";
  for (int64_t blockM : tile.blockM)
    if (blockM % multiple || blockM > most ||
        !isWidth(tile.getProductWidth(blockM), problem.compute) ||
        (!tile.swapsAB(blockM) && !isOnM(blockM)))
      return "block_m has " + number(blockM) + remedy;
  if (tile.noSwapAB && !isOnM(tile.getMaxBlockM()))
    return "block_m up to " + number(tile.getMaxBlockM()) + remedy;
  return {};
}

/// Reason why a gemm cannot multiply its weights from registers with this
/// shape; empty if it can.
std::string registersIllegal(const GemmProblem &problem,
                             const TileShape &tile) {
  int64_t rows = tile.getWeightRows();
  if (rows != 128 && rows != 192 && rows != 256)
    return "block_n = " + number(tile.blockN) +
           (problem.weightsPerColumn == 2 ? "; give 64, 96 or 128"
                                          : "; give 128, 192 or 256") +
           ", the widths for prepacked weights";
  constexpr int64_t packedK = moe::PrepackedFormat::kSizeK, maxTiles = 8;
  if (tile.noSwapAB)
    return "no_swap_ab = true, but prepacked weights must be on the M side; "
           "give false";
  if (tile.blockK < packedK || tile.blockK % packedK ||
      problem.sizeK % tile.blockK || tile.blockK > maxTiles * packedK)
    return "block_k = " + number(tile.blockK) + "; give a multiple of " +
           number(packedK) + " up to " + number(maxTiles * packedK) +
           " that divides the " + number(problem.sizeK) + " elements of K";
  int64_t sharedK = packedK * problem.packed->scaleTiles;
  if (tile.blockK > packedK && tile.blockK % sharedK)
    return "block_k = " + number(tile.blockK) + "; give " + number(packedK) +
           " or a multiple of " + number(sharedK) +
           ", which share a copy of their scales";
  return {};
}

/// Names the highest swapped tiles whose sums fit.
std::string describeHighest(const GemmShape &shape) {
  TileShape tile = shape.tile();
  if (tile.noSwapAB)
    return {};
  constexpr int64_t multiple = 8;
  int64_t rows = tile.getMaxBlockM();
  auto fits = [&] {
    return RegisterBudget(shape.problem(), tile).getAccumulators() <=
           shape.registers().getMaxAccumulators();
  };
  for (; rows > multiple && !fits(); tile.blockM.assign({rows}))
    rows -= multiple;
  return ", as with block_m up to " + number(rows);
}

/// Reason why the consumers of a kernel cannot quantize the rows of its gemm;
/// empty if they can.
std::string declineQuantization(tile::QuantizeOp quantize, tile::GemmOp gemm,
                                const GemmShape &shape) {
  tile::ConfigAttr config = quantize.getConfigAttr();
  if (!isa_and_nonnull<tile::GpuQuantizeAttr>(config) ||
      !anygpu::Quantize(quantize, config).areHeld())
    return "a warp cannot hold a row in registers, or a row has several scales";
  if (!shape.problem().isGrouped || gemm.getSource() || !gemm.takesAllGroups())
    return "the gemm does not read all rows in order";
  if (shape.problem().copiesScales())
    return "the threads that copy row scales do not wait for the quantization";
  return {};
}

/// Reason why a kernel cannot begin with the quantization; empty if it can.
std::string quantizationIllegal(tile::QuantizeOp quantize, tile::GemmOp gemm,
                                const GemmShape &shape) {
  Value scale = quantize.getTensorScale() ? quantize.getTensorScale()
                                          : quantize.getScale();
  if (gemm.getInput() != quantize.getQuantized() ||
      gemm.getInputScale() != scale ||
      gemm.getOffsets() != quantize.getOffsets())
    return "the gemm reads other rows";
  return declineQuantization(quantize, gemm, shape);
}

/// Reason why a CTA cannot multiply such tiles, whatever memory and registers
/// it has; empty if it can.
std::string tilesIllegal(const GemmProblem &problem, const TileShape &tile) {
  int64_t rows = tile.getWeightRows();
  if (tile.noSwapAB && rows != 128 && rows != 256)
    return "block_n = " + number(tile.blockN) +
           " with no_swap_ab = true; give " +
           (problem.weightsPerColumn == 2 ? "64 or 128" : "128 or 256");
  if (problem.quantizes && tile.blockN != kQuantizedColumns)
    return "block_n = " + number(tile.blockN) +
           ", but a CTA that quantizes needs the columns of one group; give " +
           number(kQuantizedColumns);
  if (problem.isPrepacked()) {
    if (std::string reason = registersIllegal(problem, tile); !reason.empty())
      return reason;
  } else if (rows != 64 && rows != 128 && rows != 256)
    return "block_n = " + number(tile.blockN) +
           (problem.weightsPerColumn == 2 ? "; give 32, 64 or 128"
                                          : "; give 64, 128 or 256");
  if (std::string reason = blockMIllegal(problem, tile); !reason.empty())
    return reason;
  if (problem.quantizesInput && tile.getMaxBlockM() > kMostQuantizedRows)
    return "block_m up to " + number(tile.getMaxBlockM()) +
           ", but rows are quantized as they are copied; give at most " +
           number(kMostQuantizedRows);
  if (problem.quantizesInput && tile.stages < getTurnStages(tile))
    return "stages = " + number(tile.stages) +
           ", but warps quantize k tiles in turn, and may leave as many of " +
           number(tile.getKTiles()) + " to others; give at least " +
           number(getTurnStages(tile));
  if (!problem.isPrepacked() && tile.kTileBytes != kStepBytes)
    return "block_k = " + number(tile.blockK) + "; give " +
           number(kStepBytes * 8 / problem.inputBits);
  return {};
}

/// The partner's own shape; nothing if there is no partner, or if it has no
/// legal config of this schedule.
std::optional<GemmShape> getPartnerShape(tile::GemmOp op) {
  tile::GemmOp partner = getPartner(op);
  auto config =
      partner ? dyn_cast_or_null<tile::Sm90GemmAttr>(partner.getConfigAttr())
              : nullptr;
  if (!config)
    return std::nullopt;
  GemmProblem problem(partner);
  if (!tilesIllegal(problem, TileShape(problem, config)).empty())
    return std::nullopt;
  return GemmShape(partner, config);
}

/// Reason why two CTAs of a cluster cannot share the weights of their tiles;
/// empty if they can.
std::string multicastIllegal(tile::GemmOp gemm, const GemmProblem &problem) {
  if (!problem.isGrouped)
    return "a dense gemm has no groups whose tiles could be paired";
  if (problem.isPrepacked())
    return "prepacked weights are copied as a whole";
  if (problem.quantizesInput)
    return "each CTA quantizes its own rows";
  if (problem.adapters)
    return "each CTA copies the adapters of its own rows";
  if (gemm.getSignals() || gemm.getAwaits())
    return "CTAs that wait for each other run without clusters";
  return {};
}

/// Reason why the CTAs of a cluster cannot share the k tiles of a tile, and
/// what to give instead; empty if they can.
std::string splitIllegal(tile::GemmOp gemm, const GemmProblem &problem,
                         const TileShape &tile) {
  constexpr int64_t most = 8;
  if (tile.splitK > most || !llvm::isPowerOf2_64(uint64_t(tile.splitK)))
    return "; give 0, 2, 4 or 8";
  if (tile.splitK > tile.getKTiles())
    return ", but there are " + number(tile.getKTiles()) +
           " k tiles; give at most that many CTAs";
  if (tile.noSwapAB || tile.getMaxBlockM() > kSplitRows)
    return ", but block_m is up to " + number(tile.getMaxBlockM()) +
           "; give values up to " + number(kSplitRows) +
           " without no_swap_ab, or split_k = 0";
  std::string reason;
  if (tile.multicastsWeights)
    reason = "multicast_weights has clusters of its own";
  else if (tile.hasDynamicScheduler)
    reason = "clusters take tiles in a fixed order, without dynamic_scheduler";
  else if (problem.adapters)
    reason = "the k tiles of adapters are not split";
  else if (problem.quantizesInput)
    reason = "threads that quantize rows take the k tiles in turns";
  else if (gemm.getSignals() || gemm.getAwaits())
    reason = "CTAs that wait for each other run without clusters";
  return reason.empty() ? reason : ", but " + reason + "; give 0";
}

/// Reason why a gemm cannot begin with its rows while the launch before it
/// runs; empty if it can.
std::string awaitIllegal(tile::GemmOp gemm, const GemmProblem &problem,
                         const TileShape &tile) {
  if (!problem.adapters)
    return "no k tiles of adapters follow those of its rows";
  if (!gemm.getIds())
    return "it reads 'offsets' first, for which it waits";
  if (gemm.getSignals())
    return "it signals by the same counter";
  if (gemm.getNumValidTokens())
    return "it begins with rows of zeros";
  if (tile.getClusterCtas() > 1)
    return "its CTAs are in clusters";
  return {};
}

std::string gemmIllegal(Operation *op, tile::ConfigAttr config,
                        const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  if (std::string reason = declineGemm(gemm); !reason.empty())
    return reason;
  GemmProblem problem(gemm);
  TileShape tile(problem, cast<tile::Sm90GemmAttr>(config));
  if (std::string reason = tilesIllegal(problem, tile); !reason.empty())
    return reason;
  GemmShape shape(gemm, config);
  if (const RegisterBudget &budget = shape.registers(); !budget.fits())
    return "block_n = " + number(tile.blockN) + ", block_m up to " +
           number(tile.getMaxBlockM()) + " needs " +
           number(budget.getAccumulators()) +
           " accumulators per thread; give at most " +
           number(budget.getMaxAccumulators()) + describeHighest(shape);
  if (tile.mapRows && gemm.getSource())
    return "map_rows = true, but a tensor map cannot gather rows by 'source'";
  if (tile.mapRows && problem.quantizesInput)
    return "map_rows = true, but a tensor map cannot quantize rows";
  if (tile.stages < kMinStages || tile.stages > kMaxStages)
    return "stages = " + number(tile.stages) + "; give " + number(kMinStages) +
           " to " + number(kMaxStages);
  if (tile.hasDynamicScheduler && !problem.isGrouped)
    return "dynamic_scheduler = true needs a grouped gemm; give 'offsets', or "
           "dynamic_scheduler = "
           "false";
  if (gemm.getNumColumns() && problem.launchColumns % tile.blockN != 0)
    return "block_n = " + number(tile.blockN) + ", which does not divide the " +
           number(problem.launchColumns) +
           " columns of a launch; give a divisor";
  if (tile.multicastsWeights) {
    if (std::string reason = multicastIllegal(gemm, problem); !reason.empty())
      return "multicast_weights = true, but " + reason + "; give false";
  }
  if (tile.splitK > 1) {
    if (std::string reason = splitIllegal(gemm, problem, tile); !reason.empty())
      return "split_k = " + number(tile.splitK) + reason;
  }
  if (gemm.getTileCounter() && !tile.hasDynamicScheduler)
    return "dynamic_scheduler = false, but the gemm has 'tile_counter'; give "
           "dynamic_scheduler = true, or "
           "remove 'tile_counter'";
  if (tile::QuantizeOp quantize = getQuantization(gemm)) {
    std::string reason = quantizationIllegal(quantize, gemm, shape);
    if (!reason.empty())
      return "the kernel cannot quantize the gemm's rows: " + reason;
    if (gemm.getSignals())
      return "it has 'signals', but the kernel quantizes its rows";
  } else if (awaitsRows(gemm)) {
    if (std::string reason = awaitIllegal(gemm, problem, tile); !reason.empty())
      return "it has 'awaits', but " + reason + "; leave it out";
  } else if (gemm.getAwaits() || (gemm.getSignals() && !getSums(gemm))) {
    if (tile.hasDynamicScheduler)
      return "dynamic_scheduler = true, but tiles of joined gemms have a fixed "
             "order";
    tile::GemmOp partner = getPartner(gemm);
    if (!partner ||
        partner->isBeforeInBlock(gemm) != static_cast<bool>(gemm.getAwaits()))
      return "of two joined gemms, the first must signal and the second await "
             "the same counter; run tile-rewrite-launches";
    tile::ConfigAttr others = partner.getConfigAttr();
    if (others && !isa<tile::Sm90GemmAttr>(others))
      return ("the other one of two joined gemms has the schedule " +
              others.getSchedule() + "; give both sm90.gemm")
          .str();
    if (std::optional<GemmShape> other = getPartnerShape(gemm)) {
      std::string reason =
          gemm.getAwaits() ? other->whyApart(shape) : shape.whyApart(*other);
      if (!reason.empty())
        return "two gemms cannot be joined: " + reason;
      shape.shareWith(*other);
    }
  }
  if (shape.shared().getBytes() > target.getSharedBytes())
    return "stages = " + number(tile.stages) + " needs " +
           number(shape.shared().getBytes()) +
           " bytes of shared memory; give at most " +
           number(target.getSharedBytes());
  return {};
}

constexpr llvm::StringLiteral kTooManyTiles =
    "there may be more tiles than the counter can count";

constexpr llvm::StringLiteral kHasClusters =
    "its CTAs are in clusters (multicast_weights or split_k)";

/// Whether a counter that CTAs also signal by may overflow for the load.
bool countsTooManyTiles(tile::GemmOp gemm, tile::LoadAttr load) {
  GemmShape shape(gemm, gemm.getConfigAttr());
  // As if all tiles had the least BLOCK_M.
  auto rows = int64_t(load.getMaxTokens() * load.getTopK());
  int64_t tiles = rows / kBlockMMultiple + shape.problem().groups;
  constexpr int64_t most = (int64_t(1) << 32) / kTileIncrement;
  return tiles * shape.tile().getNTiles() >= most;
}

/// `AwaitsRows::whyNotAwaited`.
std::string whyNotAwaited(tile::GemmOp gemm) {
  if (gemm.getAwaits())
    return "the gemm awaits others already";
  GemmShape shape(gemm, gemm.getConfigAttr());
  return awaitIllegal(gemm, shape.problem(), shape.tile());
}

/// `QuantizesInputs::whyApart`.
std::string whyQuantizedApart(tile::QuantizeOp quantize, tile::GemmOp gemm,
                              tile::LoadAttr load) {
  if (gemm.getSignals() || gemm.getAwaits())
    return "the gemm is already joined to another one";
  if (GemmShape(gemm, gemm.getConfigAttr()).tile().getClusterCtas() > 1)
    return kHasClusters.str();
  if (countsTooManyTiles(gemm, load))
    return kTooManyTiles.str();
  GemmShape shape(gemm, gemm.getConfigAttr());
  return declineQuantization(quantize, gemm, shape);
}

/// `JoinsSums::whyApart`.
std::string whySumsApart(tile::GemmOp gemm, tile::GatherReduceOp sums,
                         tile::LoadAttr load) {
  if (getQuantization(gemm))
    return "the kernel quantizes the gemm's rows";
  if (gemm.getSignals())
    return "the gemm signals already";
  if (awaitsRows(gemm))
    return "the launch before it signals by the same counter";
  if (GemmShape(gemm, gemm.getConfigAttr()).tile().getClusterCtas() > 1)
    return kHasClusters.str();
  if (!gemm.takesAllGroups())
    return "another launch computes the other groups of the gemm";
  auto config = dyn_cast<tile::GpuGatherReduceAttr>(sums.getConfigAttr());
  if (!config ||
      config.getColumnsPerCta() / config.getVectorWidth() > kWarpgroup)
    return "the sums have more threads than a warpgroup";
  if (gemm.getTileCounter() && countsTooManyTiles(gemm, load))
    return kTooManyTiles.str();
  return {};
}

/// `FollowsPhase::whyApart`. Phases that the gemm awaits are its own.
std::string whyPhasesApart(Operation *first, tile::GemmOp gemm) {
  auto kernel = gemm->getParentOfType<tile::KernelOp>();
  if (gemm.getAwaits() ||
      (isa<tile::SortByExpertOp>(first) && gemm.getOffsets() &&
       kernel.getPrivateRowsOf(gemm.getOffsets())))
    return {};
  return "only a gemm that it awaits, or a sort in each CTA's own memory, may "
         "precede it in a kernel";
}

/// `FollowsSort::shrink`.
tile::ConfigAttr dropStage(tile::GemmOp gemm) {
  auto config = cast<tile::Sm90GemmAttr>(gemm.getConfigAttr());
  if (config.getStages() <= kMinStages)
    return nullptr;
  return tile::Sm90GemmAttr::get(
      gemm.getContext(), config.getBlockM(), config.getBlockN(),
      config.getBlockK(), config.getStages() - 1, config.getL2Rows(),
      config.getMapRows(), config.getNoSwapAb(), config.getDynamicScheduler(),
      config.getMulticastWeights(), config.getSplitK());
}

/// Persistent: one CTA per SM takes tiles until none is left. Only the device
/// knows how many rows a group has.
moert::Expr gemmGrid(Operation *op, tile::ConfigAttr config,
                     const Target &target) {
  GemmShape shape(cast<tile::GemmOp>(op), config);
  moert::Expr most(shape.tile().countResidentCtas(target.getMultiprocessors()));
  if (shape.problem().isGrouped)
    return most;
  return moert::Expr::min(
      rowBlocks(shape.tile().getMaxBlockM()) *
          moert::Expr(shape.tile().getNTiles() * shape.tile().splitK),
      most);
}

int64_t gemmBlock(Operation *op, tile::ConfigAttr config) {
  return GemmShape(cast<tile::GemmOp>(op), config).tile().getThreads();
}

int64_t gemmShared(Operation *op, tile::ConfigAttr config) {
  return getShapeInKernel(cast<tile::GemmOp>(op), config).shared().getBytes();
}

SmallVector<tile::TensorMapAttr> gemmMaps(Operation *op,
                                          tile::ConfigAttr config) {
  auto gemm = cast<tile::GemmOp>(op);
  return getTensorMaps(gemm, GemmShape(gemm, config));
}

/// `OrdersSums::getSumOrder`.
tile::SumOrderAttr getGemmOrder(tile::GemmOp op, tile::ConfigAttr config) {
  GemmProblem problem(op);
  TileShape tile(problem, cast<tile::Sm90GemmAttr>(config));
  bool isExact = problem.compute == ComputeType::Int8 && !problem.promotes;
  int64_t inCta = tile.sharesBlock() ? kConsumers : 1;
  int64_t splits = isExact ? 1 : inCta * tile.splitK;
  int64_t shuffled = 0, promoted = problem.promotes ? tile.blockK : 0;
  if (problem.isPrepacked()) {
    constexpr int64_t packedK = moe::PrepackedFormat::kSizeK;
    shuffled = packedK;
    moe::PrepackedFormat format(op.getWeightQuantAttr());
    if (problem.promotes)
      promoted = tile.getChainedTiles(format, tile.getMaxBlockM()) * packedK /
                 format.getGroups();
  }
  return tile::SumOrderAttr::get(op.getContext(), tile::SumUnit::TensorCore,
                                 kWgmmaBytes * 8 / problem.inputBits, shuffled,
                                 splits, splits > 1 ? tile.blockK / inCta : 0,
                                 promoted, /*joined=*/false);
}

/// A schedule of gemms with the cost model that ranks sm90.gemm and gpu.gemv
/// against each other.
template <typename Base, typename... Interfaces>
struct ModelledGemm : ScheduleWith<Base, ModelsTime, Interfaces...> {
  using ScheduleWith<Base, ModelsTime, Interfaces...>::ScheduleWith;

  std::vector<Candidate> candidates(Operation *op, tile::LoadAttr load,
                                    const Target &target) const override {
    return sm90::getGemmCandidates(op, load, target);
  }
  std::unique_ptr<CostModel> costModel(Operation *op, tile::LoadAttr load,
                                       const Target &target) const override {
    return sm90::makeGemmCost(op, load, target);
  }
  tile::ConfigAttr adaptToSkew(Operation *op, tile::LoadAttr load,
                               const Target &target,
                               tile::ConfigAttr chosen) const override {
    return sm90::adaptToSkew(op, load, target, chosen);
  }
  std::pair<int64_t, int64_t>
  getTile(tile::ConfigAttr candidate) const override {
    return sm90::getLargestTile(candidate);
  }
};

struct GemmSchedule final
    : ModelledGemm<Schedule, AppendsAdapters, AwaitsRows, CountsIds,
                   SplitsColumns, JoinsProducts, JoinsSums, QuantizesInputs,
                   FollowsPhase, FollowsSort, RunsPhases, PermutesRows,
                   SplitsLargeGroups, QuantizesRows, MulticastsWeights,
                   KnowsSpills, OrdersSums> {
  GemmSchedule() : ModelledGemm("sm90.gemm", "tile.gemm") {}
  std::string whyConfigIllegal(Operation *op, tile::ConfigAttr config,
                               const Target &target) const override {
    return gemmIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return sm90::chooseGemm(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return gemmGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return gemmBlock(op, config);
  }
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return gemmShared(op, config);
  }
  SmallVector<tile::TensorMapAttr>
  tensorMaps(Operation *op, tile::ConfigAttr config) const override {
    return gemmMaps(op, config);
  }
  std::string whySpills(Operation *op, tile::ConfigAttr config) const override {
    return sm90::whySpills(op, config);
  }
  tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                 tile::ConfigAttr config) const override {
    return getGemmOrder(op, config);
  }
  std::string whyNotAwaited(tile::GemmOp gemm) const override {
    return ::whyNotAwaited(gemm);
  }
  double predictSaved(int64_t ids, const DeviceRates &device) const override {
    return sm90::predictCounting(ids, device);
  }
  std::optional<JoinedConfigs> join(tile::GemmOp first, tile::GemmOp second,
                                    tile::LoadAttr load, bool areFixed,
                                    bool mayCopyScales,
                                    const Target &target) const override {
    return joinGemms(first, second, load, areFixed, mayCopyScales, target);
  }
  std::string whyNotQuantized(tile::GemmOp product) const override {
    return declineQuantizedRows(product);
  }
  std::string whyApart(tile::QuantizeOp quantize, tile::GemmOp product,
                       tile::LoadAttr load) const override {
    return whyQuantizedApart(quantize, product, load);
  }
  std::string whyApart(tile::GemmOp product, tile::GatherReduceOp sums,
                       tile::LoadAttr load) const override {
    return whySumsApart(product, sums, load);
  }
  std::optional<JoinedConfigs> follow(Operation *, Operation *,
                                      tile::LoadAttr) const override {
    return std::nullopt;
  }
  std::string whyApart(Operation *first, Operation *second,
                       tile::LoadAttr) const override {
    return whyPhasesApart(first, cast<tile::GemmOp>(second));
  }
  tile::ConfigAttr shrink(tile::GemmOp op) const override {
    return dropStage(op);
  }
  Operation *findRunner(Operation *before, Operation *phase) const override {
    if (!cast<tile::GemmOp>(phase).getAwaits())
      return nullptr;
    // The first of two joined gemms runs both; a gemm quantizes its rows.
    if (isa<tile::GemmOp>(before))
      return before;
    return isa<tile::QuantizeOp>(before) ? phase : nullptr;
  }
  tile::ConfigAttr withMaps(tile::ConfigAttr config) const override {
    return config.withMapRows(true);
  }
  bool hasMaps(tile::ConfigAttr config) const override {
    return config.getMapRows();
  }
  tile::ConfigAttr withMulticast(tile::ConfigAttr config) const override {
    tile::ConfigAttr paired = tile::withFlag(config, "multicast_weights", true);
    bool isSplit = cast<tile::Sm90GemmAttr>(config).getSplitK() > 1;
    return isSplit || paired == config ? tile::ConfigAttr() : paired;
  }
  int64_t getPairedRows(tile::ConfigAttr config) const override {
    return 2 * cast<tile::Sm90GemmAttr>(config).getBlockM().back();
  }
  int64_t getColumnMultiple(tile::ConfigAttr config) const override {
    return cast<tile::Sm90GemmAttr>(config).getBlockN();
  }
  int64_t getLargeGroupRows(tile::GemmOp product,
                            tile::LoadAttr load) const override {
    return sm90::getLargeGroupRows(product, load);
  }
  tile::ConfigAttr chooseLargeGroups(tile::GemmOp product, tile::GemmOp large,
                                     tile::LoadAttr load,
                                     const Target &target) const override {
    return chooseLargeGroupsGemm(product, large, load, target);
  }
};

/// Weight prepacking. A CTA reorders a block of 64 rows: it reads all of them
/// before it writes, because the output may alias them.
struct PrepackSchedule final : Schedule {
  PrepackSchedule() : Schedule("sm90.prepack", "tile.prepack") {}
  std::string whyConfigIllegal(Operation *op, tile::ConfigAttr config,
                               const Target &target) const override {
    constexpr int64_t most = 1024;
    int64_t threads = block(op, config);
    if (threads < moe::PrepackedFormat::kRows || threads % 32 || threads > most)
      return "threads = " + number(threads) + "; give a multiple of 32 from " +
             number(moe::PrepackedFormat::kRows) + " to " + number(most);
    if (shared(op, config) > target.getSharedBytes())
      return "a block of rows needs " + number(shared(op, config)) +
             " bytes of shared memory; there are " +
             number(target.getSharedBytes());
    return {};
  }
  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t threads = 512;
    return tile::Sm90PrepackAttr::get(op->getContext(), threads);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr,
                   const Target &) const override {
    auto scale = cast<tile::PrepackOp>(op).getRowScale().getType();
    return cast<MemRefType>(scale).getNumElements() /
           moe::PrepackedFormat::kRows;
  }
  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::Sm90PrepackAttr>(config).getThreads();
  }
  int64_t shared(Operation *op, tile::ConfigAttr) const override {
    return Prepack(cast<tile::PrepackOp>(op)).getSharedBytes();
  }
};

struct ModelledGemvSchedule final : ModelledGemm<anygpu::GemvSchedule> {};

} // namespace

GemmShape sm90::getShapeInKernel(tile::GemmOp op, tile::ConfigAttr config) {
  GemmShape shape(op, config);
  if (std::optional<GemmShape> partner = getPartnerShape(op))
    shape.shareWith(*partner);
  return shape;
}

const Schedule &moec::getSm90GemmSchedule() { return getOnly<GemmSchedule>(); }
const Schedule &moec::getSm90PrepackSchedule() {
  return getOnly<PrepackSchedule>();
}
const Schedule &moec::getSm90GemvSchedule() {
  return getOnly<ModelledGemvSchedule>();
}
