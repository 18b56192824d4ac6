//===- Cost.cpp - how long the schedules sm90.* take ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Cost model of the Hopper gemm. Three streams overlap: weights from memory,
// the chain of wgmmas on each SM, and the traffic between L2 and SMs. The
// overhead of a launch comes before and after them.

#include "Cost.h"

#include "Schedules/Gemv/Choice.h"
#include "Schedules/Lora/Cost.h"

#include "GroupTiling.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/RowCounts.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

int64_t sm90::estimateEpilogue(tile::GemmOp op) {
  constexpr int64_t store = 6, division = 4, element = 10;
  // Results of 16 bits may use approximate math. Counts are of the expansions
  // that handle every range; exp and division, which flush, take 2 each. The
  // limits on BLOCK_M and the measured times of tiles agree with the former.
  int64_t expanded =
      getElementTypeOrSelf(op.getResult()).getIntOrFloatBitWidth() > 16 ? 30
                                                                        : 5;
  constexpr int64_t perRowOrColumn = 2;
  int64_t lines = store + element * op.getElementwiseOperands().size() +
                  perRowOrColumn * (op.getRowOperands().size() +
                                    op.getColumnOperands().size());
  // A product and a conversion per element of the rank, and loads of eight.
  constexpr int64_t perUpdate = 12, perEight = 20;
  if (!getAdapterTiles(op))
    for (Value matrix : op.getMatrices())
      lines +=
          perUpdate +
          perEight * llvm::divideCeil(
                         cast<MemRefType>(matrix.getType()).getDimSize(3), 8);
  // Scales of whole rows are operands per row and column, too.
  ScaleTimes scales(op);
  for (ScaleTime time : {scales.input, scales.weight})
    if (time == ScaleTime::InEpilogue)
      lines += kScaleLines;
  op.getEpilogue().walk([&](Operation *inner) {
    if (isa_and_nonnull<math::MathDialect>(inner->getDialect()))
      lines += expanded;
    else if (isa<arith::DivFOp>(inner))
      lines += division;
    else if (!inner->hasTrait<OpTrait::ConstantLike>() &&
             !inner->hasTrait<OpTrait::IsTerminator>())
      ++lines;
  });
  return lines;
}

double sm90::meanCeil(double mean, double variance, double width) {
  double deviation = std::sqrt(variance);
  if (deviation < 0.5)
    return std::ceil(std::round(mean) / width);
  double reach = 6 * deviation + 1;
  auto isAtMost = [&](double x) {
    return 0.5 * std::erfc((mean - x) / (deviation * std::sqrt(2.0)));
  };
  double spread = deviation / width;
  constexpr double wide = 0.5, pi = 3.14159265358979323846;
  if (spread > wide) {
    // The sawtooth ceil(x) - x has two harmonics over so wide a distribution;
    // all others are below the digits of a double.
    double middle = (mean - 0.5) / width, result = middle + 0.5;
    for (double k : {1, 2})
      result += std::sin(2 * pi * k * middle) *
                std::exp(-2 * std::pow(pi * k * spread, 2)) / (pi * k);
    for (int64_t i = 1; 0.5 - double(i) * width > mean - reach; ++i)
      result += isAtMost(0.5 - double(i) * width);
    return result;
  }
  auto n = int64_t(std::max(0.0, std::floor((mean - reach) / width)));
  auto result = double(n);
  for (; double(n) * width < mean + reach; ++n)
    result += 1 - isAtMost(double(n) * width + 0.5);
  return result;
}

namespace {

/// Instructions per result to quantize it: the largest magnitude of a row or,
/// with a given scale, the clamp; a division and its correction; two roundings.
int64_t getQuantizationLines(tile::GemmOp op) {
  constexpr int64_t found = 6, given = 11;
  if (op.getResultTensorScale())
    return given;
  return op.getResultScale() ? found : 0;
}

double power4(double x) { return x * x * x * x; }
double root4(double x) { return std::sqrt(std::sqrt(x)); }

/// Tiles of one BLOCK_M, over all groups, and the rows in them.
struct BlockMUse {
  double tiles = 0, rows = 0;
};

/// Adapters of a call.
struct AdapterUse {
  /// The number of adapters with rows, and bytes of their second matrices.
  double count = 0, bytes = 0;
};

AdapterUse getAdapterUse(tile::GemmOp op, tile::LoadAttr load, int64_t tokens,
                         Routing routing) {
  if (!op.getShrunk() || !load)
    return {};
  auto type = cast<MemRefType>(op.getMatrices().front().getType());
  lora::PairCounts counts(load, type.getDimSize(1), type.getDimSize(0), tokens,
                          routing);
  double bytes = double(op.getMatrices().size()) * double(type.getDimSize(2)) *
                 double(type.getDimSize(3)) * type.getElementTypeBitWidth() / 8;
  return {double(std::min(type.getDimSize(0), tokens)), counts.pairs * bytes};
}

/// Work of one config over the rows of all groups.
struct Work {
  /// M tiles over all groups: mean and variance.
  double tiles = 0, variance = 0;
  /// The part of the variance that is due to the M tiling of groups.
  double cutVariance = 0;
  /// Per N tile, over all M tiles: clocks of wgmmas and of epilogues, bytes
  /// from L2, rows computed.
  double productClk = 0, epilogueClk = 0, l2Bytes = 0, rows = 0;
  /// Clocks of k tiles of adapters that nothing hides.
  double adapterClk = 0;
  /// Clocks of a tile of each kind, and the number of such tiles.
  SmallVector<std::pair<double, double>> kinds;

  /// Clocks of `count` tiles in sequence on the SM that has the longest ones;
  /// with the dynamic scheduler only its last one may be long.
  double getLongest(double count, double deviations,
                    bool hasDynamicScheduler) const;
};

double Work::getLongest(double count, double deviations,
                        bool hasDynamicScheduler) const {
  if (tiles == 0)
    return 0;
  // Kinds of tiles rarer than this are ignored.
  constexpr double rare = 0.01;
  double mean = (productClk + epilogueClk) / tiles, variance = 0, most = mean;
  for (auto [clk, times] : kinds) {
    variance += (clk - mean) * (clk - mean) * times / tiles;
    if (times > rare * tiles)
      most = std::max(most, clk);
  }
  double uneven = hasDynamicScheduler ? 1 : count;
  return std::min(count * mean + deviations * std::sqrt(variance * uneven),
                  count * most);
}

} // namespace

double sm90::getDecodeClk(tile::GemmOp op, const DeviceRates &device) {
  if (!hasPrepackedLayout(op.getWeightQuantAttr()))
    return 0;
  using moe::PrepackedFormat;
  PrepackedFormat format(op.getWeightQuantAttr());
  // Weights of 8 bits take as many instructions to decode as others multiplied
  // in the same way. Zero points take 16 more, scales stored as sums 40, as
  // floats 24. Results in e4m3 take half as many registers, two of which come
  // from a word.
  constexpr double ofE4M3 = 0.65;
  // Signs of e4m3 values are converted four at a time.
  constexpr double ofSigns = 0.25;
  if (format.values.isNative())
    return ofSigns * device.decodeMxfp4Clk;
  if (format.values.decoded == moe::DecodedType::E4M3)
    return ofE4M3 * (format.values.isInteger() ? device.decodeInt4Clk
                                               : device.decodeMxfp4Clk);
  // Groups of 16 have twice as many scales to unpack, by 5 instructions each if
  // they are sums, else by one; a minimum is two more values.
  double perScale = format.scale.isSum ? 5 : 1, zeroPoints = 16;
  if (format.hasMinima)
    perScale += 2;
  double more = double(std::max<int64_t>(format.getGroups() - 2, 0)) *
                PrepackedFormat::kQuadRows * perScale / zeroPoints;
  if (format.values.isInteger()) {
    more += format.scale.isSum ? 2.5 : format.hasZeroPoints ? 1 : 0;
    // A minimum is one more value per group, as zero points are here.
    more += format.hasMinima ? 0.5 : 0;
    return device.decodeInt4Clk + more * device.decodeZeroPointsClk;
  }
  if (format.scale.isSum)
    more += 1.5;
  // With a code book each pair takes a load, and all of them 66 instructions
  // with the multiplications, where mxfp4 has 56.
  constexpr double ofBook = 66.0 / 56;
  if (format.book)
    return ofBook * device.decodeMxfp4Clk + more * device.decodeZeroPointsClk;
  if (format.values.stored == moe::StoredValue::E4M3)
    return device.decodeMxfp4Clk + more * device.decodeZeroPointsClk;
  // Two operations more per word than with bf16.
  double ofHalves = format.values.decoded == moe::DecodedType::F16
                        ? 0.5 * device.decodeZeroPointsClk
                        : 0;
  return ofHalves + (format.scale.stored == moe::StoredScale::E5M3
                         ? device.decodeNvfp4Clk
                         : device.decodeMxfp4Clk);
}

/// Promotions of the sums per packed tile of weights from registers; 0 without
/// promotion.
static double getPromotions(tile::GemmOp op) {
  if (!hasPrepackedLayout(op.getWeightQuantAttr()))
    return 0;
  return double(moe::PrepackedFormat(op.getWeightQuantAttr()).getGroups());
}

namespace {

class GemmCost : public CostModel {
public:
  GemmCost(tile::GemmOp op, tile::LoadAttr load, const Target &target)
      : op(op), load(load), device(*getDeviceRates(target)),
        epilogueLines(double(estimateEpilogue(op) + getQuantizationLines(op))),
        decodeClk(getDecodeClk(op, device)), promotions(getPromotions(op)),
        hasSource(op.getSource()) {
    // LoRA updates have rows of groups.
    if (op.getOffsets())
      for (Value update : op.getElementwiseOperands())
        updateBits.push_back(
            getElementTypeOrSelf(update).getIntOrFloatBitWidth());
  }

  Prediction predict(tile::ConfigAttr config, int64_t tokens,
                     Routing routing) override;

private:
  const GemmShape &getShape(tile::ConfigAttr config);
  const RowCounts &getCounts(const GemmShape &shape, int64_t tokens,
                             Routing routing);
  double getRegisterStep(const GemmShape &shape, int64_t blockM, double product,
                         double chains) const;
  Work getWork(const GemmShape &shape, const RowCounts &counts) const;
  void addTiles(const GemmShape &shape, int64_t blockM, BlockMUse use,
                Work &work) const;
  /// K tiles of adapters of a tile with that many rows.
  double getAdapterTiles(const GemmShape &shape, double rows) const;
  /// Bytes of second matrices in one of them.
  static double getAdapterBytes(const GemmShape &shape);
  /// Clocks of a tile in which threads copy so many of them, with so few bytes
  /// in flight that no weights stream besides.
  double getExposedAdapterClk(const GemmShape &shape, double tiles,
                              double rows) const;
  /// Clocks of a warp that copies and quantizes that many rows of a k tile; 0
  /// if rows are copied as they are.
  static double getQuantizationClk(const GemmShape &shape, double rows);
  double getFloor(const GemmShape &shape, const RowCounts &counts,
                  double bytes) const;
  /// Time of a launch without tiles.
  Prediction predictIdle() const;
  /// Bytes of input, result and weights that go over the memory bus.
  double getMemoryBytes(const GemmShape &shape, const RowCounts &counts,
                        int64_t tokens) const;

  tile::GemmOp op;
  tile::LoadAttr load;
  const DeviceRates &device;
  double epilogueLines, decodeClk, promotions;
  bool hasSource;
  /// Bits of an element, per elementwise operand; empty without groups.
  SmallVector<int64_t> updateBits;
  /// The adapters of the call whose time is being predicted.
  AdapterUse adapters;
  /// Kept, because a config is asked for at many token counts.
  DenseMap<tile::ConfigAttr, std::unique_ptr<GemmShape>> shapes;
  DenseMap<std::pair<int64_t, int64_t>, std::unique_ptr<RowCounts>> counts;
};

const GemmShape &GemmCost::getShape(tile::ConfigAttr config) {
  std::unique_ptr<GemmShape> &entry = shapes[config];
  if (!entry)
    entry = std::make_unique<GemmShape>(op, config);
  return *entry;
}

const RowCounts &GemmCost::getCounts(const GemmShape &shape, int64_t tokens,
                                     Routing routing) {
  std::unique_ptr<RowCounts> &entry = counts[{tokens, int64_t(routing)}];
  if (!entry) {
    entry = std::make_unique<RowCounts>(load, shape.problem().groups, tokens,
                                        routing);
    entry->keep(shape.problem().groups,
                [&](int64_t rows) { return op.takesGroup(rows); });
  }
  return *entry;
}

/// Clocks of a k tile whose weights are decoded into registers: the larger of
/// the resources that all consumers share (instruction issue and tensor cores)
/// and the latency of one consumer, which overlap in part. `product`: the
/// tensor cores' clocks of 64 rows and 16 of K alone.
double GemmCost::getRegisterStep(const GemmShape &shape, int64_t blockM,
                                 double product, double chains) const {
  auto perTile = double(shape.problem().swizzleBytes) / kWgmmaBytes;
  bool decodesToE4M3 = shape.problem().compute == ComputeType::E4M3;
  auto packedTiles = double(shape.tile().swizzleRows);
  // Multiplications of single warps do not wait for each other (H200,
  // gpt-oss-120b: 3908 and 4239 us with weights from the cache).
  constexpr double byWarps = 0.86;
  if (shape.tile().multipliesByWarps(blockM))
    chains *= byWarps;
  // Sums of scale groups are added by the SM's four schedulers, once per group
  // of a packed tile.
  double promoteClk =
      shape.problem().promotes
          ? double(shape.tile().getProductWidth(shape.tile().getMaxBlockM())) /
                2 * promotions
          : 0;
  double shared = packedTiles * chains *
                  std::hypot(decodeClk + promoteClk, perTile * product);
  // A consumer's packed tiles are interleaved with those of the others.
  double own = device.registerStepClk +
               packedTiles * chains *
                   (device.registerTileClk + promoteClk +
                    device.registerProductShare * perTile * product);
  double clk = root4(power4(shared) + power4(own));
  // Each BLOCK_M has code for all packed tiles of a k tile, and only
  // `nearTiles` of them stay in the instruction cache: with 20 a k tile took a
  // sixth longer than with 12 (H100, gpt-oss-120b), with 15 as long as with 10
  // (H200). Packed tiles for e4m3 have less code, with half as many wgmmas
  // (H200: 1146 us with 192 and four values of BLOCK_M, 1031 with 320 and
  // three).
  constexpr double nearTiles = 15, perTileMore = 0.02, codeOfE4M3 = 0.75;
  double codeTiles =
      packedTiles *
      double(shape.tile().getBlocks(shape.tile().getMaxBlockM())) *
      double(shape.tile().blockM.size()) *
      (decodesToE4M3 && !shape.problem().promotes ? codeOfE4M3 : 1);
  return clk * (1 + perTileMore * std::max(0.0, codeTiles - nearTiles));
}

double GemmCost::getQuantizationClk(const GemmShape &shape, double rows) {
  // Twice the latencies that are counted in the code (H200, one token of
  // dsr1_tp8_fp8, whose rows have 56 k tiles).
  constexpr double copyClk = 300, rowsClk = 600;
  if (!shape.problem().quantizesInput)
    return 0;
  return copyClk + rowsClk * std::ceil(rows / kQuantizedAtOnce);
}

double GemmCost::getAdapterTiles(const GemmShape &shape, double rows) const {
  const std::optional<AdapterTiles> &tiles = shape.problem().adapters;
  if (!tiles || adapters.count == 0)
    return 0;
  double found = adapters.count * (1 - std::pow(1 - 1 / adapters.count, rows));
  // Adapters that fill no k tile take one.
  auto together = double(tiles->getAdaptersOfTile());
  double uneven = 1 - 1 / together;
  return (found / together + (found > 1 ? uneven / 2 : uneven)) *
         double(tiles->getTilesOfAdapter());
}

double GemmCost::getAdapterBytes(const GemmShape &shape) {
  return double(shape.shared().getWeightBytes()) /
         double(shape.problem().weightsPerColumn);
}

double GemmCost::getExposedAdapterClk(const GemmShape &shape, double tiles,
                                      double rows) const {
  // Instructions of a warp, counted in the code of two gemms. One is issued
  // every other clock; loads from shared memory, a fence and two barriers wait
  // for each other. No time of this has been measured.
  constexpr double perTile = 90, perWeights = 7, perRows = 6, issueClk = 2,
                   waitClk = 300;
  constexpr double atOnce = double(kRowThreads) / AdapterTiles::kChunks;
  double columns = double(shape.tile().getWeightRows()) /
                   double(shape.problem().weightsPerColumn);
  double clk = waitClk + issueClk * (perTile + perWeights * columns / atOnce +
                                     perRows * rows / atOnce);
  double bytesPerClk = device.readBytes * device.streamShare /
                       double(device.multiprocessors) / device.tensorClock;
  // Half of the ring has weights that are ahead. H200, k tiles of 0.85 us,
  // rank 16: 81 and 58 us for 16 adapters at 1024 tokens, of which 21 and 28
  // are those of the bytes; 27 and 32 us at 256; 22 and 13 for 4 at 1024.
  double ahead = double(shape.tile().stages) / 2;
  return std::max(0.0, tiles - ahead) *
         std::max(0.0, clk - getAdapterBytes(shape) / bytesPerClk);
}

/// Clocks until the first CTA of a cluster has the sums of the others, beyond
/// those of its own k tiles.
static double getShareClk(const GemmShape &shape) {
  constexpr double waitClk = 2000, perCtaClk = 90;
  auto others = double(shape.tile().splitK - 1);
  return others > 0 ? waitClk + perCtaClk * others : 0;
}

void GemmCost::addTiles(const GemmShape &shape, int64_t blockM, BlockMUse use,
                        Work &work) const {
  auto rows = double(blockM);
  // Chains of wgmmas of both consumers; a shared block is half a chain of each.
  double chains = shape.tile().sharesBlock()
                      ? 1
                      : double(shape.tile().getConsumers() *
                               shape.tile().getBlocks(blockM));
  auto width = double(shape.tile().getProductWidth(blockM));
  double steps = double(shape.tile().getKTiles());
  // If several CTAs share a tile, the most that one has.
  auto ownSteps =
      double(llvm::divideCeil(shape.tile().getKTiles(), shape.tile().splitK));
  // A k tile is 128 bytes deep: four wgmmas.
  constexpr double perStep = 4;
  // Operations per column of N, for 64 rows and K = 16 of 16-bit elements.
  constexpr double perColumn = 2 * 64 * 16;
  double widthClk = perColumn / device.operationsPerClk;
  double product = std::max(device.productClk, width * widthClk);
  // Both operands come from shared memory; each row has 32 bytes of K per
  // wgmma.
  double shared = 32 * (double(kBlockRows) + width) / device.sharedBytesPerClk;
  double stepClk = perStep * chains * std::max(product, shared);
  if (shape.tile().blockM.size() > 1)
    stepClk *= 1 + device.blockMsShare;
  if (shape.problem().promotes && !shape.problem().isPrepacked())
    stepClk += (shape.tile().swapsAB(blockM) ? device.promotionExposed
                                             : device.rowPromotionExposed) *
               chains * width / 2;
  if (shape.problem().isPrepacked())
    stepClk = getRegisterStep(shape, blockM, width * widthClk, chains);
  constexpr double turns = double(kRowThreads) / kWarp;
  stepClk = std::max(stepClk,
                     getQuantizationClk(shape, use.rows / use.tiles) / turns);
  double clk = device.itemClk + ownSteps * std::max(device.stepClk, stepClk);
  // Threads that quantize rows begin with those of a tile when its weights are
  // on their way (H200, qwen35_35b_fp8: 1, 5 and 7 us at 1, 4 and 8 tokens).
  constexpr double quantizedTileClk = 1200;
  if (shape.problem().quantizesInput)
    clk += quantizedTileClk;
  clk /= device.tensorShare;
  double adapterTiles = getAdapterTiles(shape, use.rows / use.tiles);
  clk += adapterTiles * std::max(device.stepClk, stepClk);
  work.adapterClk += use.tiles * getExposedAdapterClk(shape, adapterTiles,
                                                      use.rows / use.tiles);
  double inputRows = rows;
  // Bytes of a row's part of a k tile in memory.
  auto rowBytes =
      double(shape.problem().quantizesInput ? shape.shared().getRawRowBytes()
                                            : shape.tile().kTileBytes);
  if (!shape.tile().mapRows) {
    // Low tiles of weights from registers take as long without the gather
    // (H200, gpt-oss-120b: 504 and 510 us at 256 tokens, 693 and 698 at 1024).
    constexpr int64_t low = 48;
    if (!shape.problem().isPrepacked() || blockM > low)
      clk *= 1 + device.gatherShare;
    inputRows = use.rows / use.tiles * (1 + device.gatherL2Share);
  }
  double epilogue = device.epilogueExposed * rows *
                    double(shape.tile().blockN) * epilogueLines /
                    device.instructionsPerClk;
  // An epilogue that adds updates loads a row of second matrices for each
  // result (H200: 110 us more at 512 tokens with one adapter).
  if (tile::GemmOp gemm = op; !shape.problem().adapters)
    for (Value matrix : gemm.getMatrices()) {
      auto type = cast<MemRefType>(matrix.getType());
      double bytes = rows * double(shape.tile().blockN) *
                     double(type.getDimSize(3)) *
                     type.getElementTypeBitWidth() / 8;
      epilogue += bytes / device.smL2BytesPerClk;
      work.l2Bytes += use.tiles * bytes;
    }
  clk += getShareClk(shape);
  work.productClk += use.tiles * clk;
  work.epilogueClk += use.tiles * epilogue;
  work.kinds.push_back({clk + epilogue, use.tiles});
  work.l2Bytes +=
      use.tiles * steps *
      (double(shape.shared().getWeightBytes()) + inputRows * rowBytes);
  // Most of the rows' chunks are zeros, which are not read.
  work.l2Bytes += use.tiles * adapterTiles * getAdapterBytes(shape);
  work.rows += use.tiles * rows;
  work.tiles += use.tiles;
}

Work GemmCost::getWork(const GemmShape &shape, const RowCounts &counts) const {
  constexpr int64_t eighth = 8;
  Work work;
  SmallVector<BlockMUse> uses(shape.tile().blockM.size());
  GroupTiler cutter(shape);
  auto add = [&](int64_t rows, double times) {
    BlockMUse &use = uses[cutter.indexOf(rows)];
    use.tiles += times;
    use.rows += times * double(rows);
  };
  double squares = 0, all = double(shape.problem().groups);
  for (auto [eighths, probability] : counts.entries) {
    double times = all * probability;
    if (eighths * eighth <= shape.tile().getMaxBlockM()) {
      add(eighths * eighth, times);
      squares += probability;
      continue;
    }
    GroupTiling tiling = cutter.tile(eighths * eighth);
    for (auto [rows, tiles] : tiling.getTiles(eighths * eighth))
      if (tiles > 0)
        add(rows, times * double(tiles));
    squares += probability * double(tiling.tiles * tiling.tiles);
  }
  for (auto [blockM, use] : llvm::zip(shape.tile().blockM, uses))
    if (use.tiles > 0)
      addTiles(shape, blockM, use, work);
  double active = counts.active / all;
  if (active > 0) {
    double mean = work.tiles / all / active;
    work.cutVariance =
        std::max(0.0, counts.active * (squares / active - mean * mean));
    work.variance = counts.activeVariance * mean * mean + work.cutVariance;
  }
  return work;
}

double GemmCost::getMemoryBytes(const GemmShape &shape, const RowCounts &counts,
                                int64_t tokens) const {
  double weights =
      counts.active *
      double(shape.problem().weightsPerColumn * shape.problem().launchColumns) *
      double(shape.problem().getRowBytes());
  double rows = counts.rows * double(shape.problem().groups);
  double inputRows = hasSource ? std::min(rows, double(tokens)) : rows;
  double input = inputRows * double(shape.problem().getInputRowBytes());
  double result = rows * double(shape.problem().launchColumns *
                                shape.problem().resultBytes);
  if (shape.problem().findsScales) {
    int64_t scales = shape.problem().launchColumns / kQuantizedColumns;
    result += rows * double(scales * kScaleElementBytes);
  }
  SmallVector<double> tensors{input, result};
  for (int64_t bits : updateBits)
    tensors.push_back(rows * double(shape.problem().launchColumns) *
                      double(bits) / 8);
  double bytes = weights + adapters.bytes;
  for (double tensor : tensors)
    if (tensor > device.l2KeptBytes)
      bytes += tensor;
  return bytes;
}

double GemmCost::getFloor(const GemmShape &shape, const RowCounts &counts,
                          double bytes) const {
  double operations =
      2 * counts.rows * double(shape.problem().groups) *
      double(shape.problem().weightsPerColumn * shape.problem().launchColumns) *
      double(shape.problem().sizeK);
  return 1e6 *
         std::max(operations / device.getOperations(shape.problem().compute),
                  bytes / device.readBytes);
}

Prediction GemmCost::predictIdle() const {
  Prediction result;
  result.us = result.fixedUs = device.getIdleTime();
  return result;
}

Prediction GemmCost::predict(tile::ConfigAttr config, int64_t tokens,
                             Routing routing) {
  if (config.getSchedule() == anygpu::kGemv)
    return anygpu::predictGemv(op, config, tokens, device);
  const GemmShape &shape = getShape(config);
  adapters = getAdapterUse(op, load, tokens, routing);
  const RowCounts &rows = getCounts(shape, tokens, routing);
  Work work = getWork(shape, rows);
  if (work.tiles == 0)
    return predictIdle();
  double nTiles = double(shape.tile().getNTiles());
  // CTAs, or clusters that take a tile each.
  auto together = double(shape.tile().splitK);
  double ctas = double(shape.tile().countResidentCtas(device.multiprocessors));
  double sms = ctas / together;

  Prediction result;
  result.activeGroups = rows.active;
  result.items = work.tiles * nTiles;
  result.waves = meanCeil(result.items, work.variance * nTiles * nTiles, sms);
  double counted = rows.rows * double(shape.problem().groups);
  result.padding = counted > 0 ? work.rows / counted : 1;
  double bytes = getMemoryBytes(shape, rows, tokens);
  result.floorUs = getFloor(shape, rows, bytes);

  double itemBytes =
      double(shape.shared().getWeightBytes()) *
      double(llvm::divideCeil(shape.tile().getKTiles(), shape.tile().splitK));
  double memory = bytes / (device.readBytes * device.streamShare);
  // Some pipeline stages are being read, fewer if they are deeper; the others
  // wait for memory.
  double inFlight = (double(shape.tile().stages) -
                     device.stagesRead / double(shape.tile().swizzleRows)) *
                    double(shape.shared().getWeightBytes());
  double rate = inFlight / (device.latencyUs * 1e-6);
  auto addInverse = [](double a, double b) {
    return root4(power4(a) + power4(b));
  };
  memory *= addInverse(1, device.readBytes / ctas / rate);
  double smSeconds = itemBytes * addInverse(1 / device.smReadBytes, 1 / rate);
  // Only one of the concurrent tiles reads the weights from memory.
  double readers = work.tiles > 0 ? std::min(1.0, rows.active / work.tiles) : 1;
  // All SMs share the bus until the last wave, in which too few may be left to
  // saturate it.
  double fullWaves =
      result.items > 0
          ? std::min(1.0, std::max(0.0, result.waves - 1) * sms / result.items)
          : 0;
  double lastWave = readers * smSeconds;
  double inLastWave = std::max(memory * (1 - fullWaves), lastWave);
  result.streamUs = 1e6 * (std::max(memory, memory * fullWaves + lastWave) +
                           device.unevenShare * inLastWave);
  // The number of M tiles depends on the routing; with few waves, one M tile
  // more can be one wave more.
  constexpr double fewWaves = 3;
  if (work.tiles > 0)
    result.streamUs *= 1 + device.uncertainShare * std::sqrt(work.cutVariance) /
                               work.tiles *
                               std::min(1.0, fewWaves / result.waves);
  // The SM with the most and the longest items.
  double share = result.items > 0 ? result.waves / result.items : 0;
  double deviations = device.unevenDeviations;
  double busyClk = work.getLongest(result.waves, deviations,
                                   shape.tile().hasDynamicScheduler);
  double busyUs = 1e6 * busyClk / device.tensorClock;
  result.epilogueUs =
      1e6 * work.epilogueClk * nTiles * share / device.tensorClock;
  result.tensorUs = busyUs - result.epilogueUs;
  // L2 traffic of all SMs, or of the SM with the most items.
  result.l2Us = 1e6 * work.l2Bytes * nTiles *
                std::max(1 / device.l2BytesPerClk,
                         share / together / device.smL2BytesPerClk) /
                device.tensorClock;
  double operations =
      work.rows *
      double(shape.problem().weightsPerColumn * shape.problem().launchColumns) *
      double(2 * shape.problem().sizeK);
  double energy = bytes * device.readEnergy +
                  work.l2Bytes * nTiles * device.l2Energy +
                  operations * device.getEnergy(shape.problem().compute);
  result.powerUs = 1e6 * energy / device.power;
  // No consumer begins before rows are quantized.
  result.fixedUs = device.getLaunchTime() +
                   1e6 * getQuantizationClk(shape, 1) / device.tensorClock;
  // Copies of the last tile's adapters wait for those of its rows, which no k
  // tile hides (H200, one adapter: 0.5 and 2.3 us for two gemms at 1 and 8
  // tokens). Loads from L2 take half of the latency.
  constexpr double adapterWaits = 2, near = 0.5;
  if (shape.problem().adapters)
    result.fixedUs += adapterWaits * near * device.latencyUs;
  result.fixedUs += 1e6 * work.adapterClk * nTiles * share / device.tensorClock;
  // A cluster starts when all of its CTAs can, behind the launch before (H200,
  // one token of four layers of fp8: 2 to 6 us more than expected without).
  constexpr double clusterUs = 5;
  if (shape.tile().splitK > 1)
    result.fixedUs += clusterUs;
  double order = device.overlapOrder;
  result.us =
      result.fixedUs +
      std::pow(std::pow(result.streamUs, order) +
                   std::pow(result.tensorUs + result.epilogueUs, order) +
                   std::pow(result.l2Us, order) +
                   std::pow(result.powerUs, order),
               1 / order);
  // The launch behind the second gemm needs little shared memory, but waits if
  // that gemm's CTAs take all registers, as they do with prepacked weights in
  // each config. The wait was measured for uniform loads. A share of the gemm's
  // time is taken off: smaller differences are ties, and moved llama4_maverick
  // to other ranges of tokens (H200: 1.5 % slower).
  constexpr double tie = 0.005;
  if (routing == Routing::Uniform && shape.tile().mapRows &&
      !shape.problem().isPrepacked() &&
      !shape.registers().hasReducedRegisters())
    result.us += std::max(0.0, device.behindUs - tie * result.us);
  // Clusters are for few tiles: with more, CTAs of their own do as well, and
  // that clusters keep up is assumed. A small gain may be none.
  constexpr double manyWaves = 2, perWave = 0.04, doubt = 0.05;
  if (shape.tile().splitK > 1)
    result.us *= 1 + doubt + perWave * std::max(0.0, result.waves - manyWaves);
  return result;
}

} // namespace

std::unique_ptr<CostModel>
sm90::makeGemmCost(Operation *op, tile::LoadAttr load, const Target &target) {
  return std::make_unique<GemmCost>(cast<tile::GemmOp>(op), load, target);
}

/// The table of groups and the first loads overlap with the launches before.
/// The counting itself is left out, although it overlaps as well: the first
/// gemm counts no more than the ranking before it, but the second one's CTAs
/// start where those of the first have ended.
double sm90::predictCounting(int64_t ids, const DeviceRates &device) {
  return device.prologueUs + device.firstBytesUs -
         double(ids) * device.countSlotUs;
}
