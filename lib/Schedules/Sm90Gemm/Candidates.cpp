//===- Candidates.cpp - configs of the schedules sm90.* ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidates.h"

#include "Cost.h"
#include "MTilingChoice.h"
#include "Schedules/Gemv/Choice.h"
#include "Shape.h"
#include "mlir/IR/Threading.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/KernelArguments.h"
#include "moec/Schedules/RowCounts.h"

#include <array>
#include <limits>
#include <map>
#include <numeric>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

/// Whether the argument is a workspace buffer in every launch. A tensor map of
/// a caller's tensor would have to be encoded at every call.
bool isBuffer(Value argument) {
  auto kernel = cast<tile::KernelOp>(argument.getParentBlock()->getParentOp());
  return getWorkspaceArguments(
      kernel)[cast<BlockArgument>(argument).getArgNumber()];
}

/// True if tensor maps can load the input rows.
bool mayMapRows(tile::GemmOp op) {
  return !op.getSource() && !op.getQuantizesInput() && isBuffer(op.getInput());
}

/// Candidate values of BLOCK_M; CTAs with few blocks of weights may have higher
/// ones.
ArrayRef<int64_t> getBlockMs() {
  static constexpr int64_t all[] = {8,   16,  24,  32,  40,  48,  56,  64,
                                    72,  80,  88,  96,  104, 112, 120, 128,
                                    136, 144, 152, 160, 176, 192, 224, 256};
  return all;
}

/// Reason why ptxas would take too long for all epilogues; empty if it does
/// not.
std::string takesLong(tile::GemmOp op, const GemmShape &shape) {
  int64_t lines = estimateLines(op, shape);
  if (lines <= ptxas::kMaxLines)
    return {};
  return "the epilogues for all block_m have about " + std::to_string(lines) +
         " lines, too many for ptxas; at most " +
         std::to_string(ptxas::kMaxLines) + " are tried";
}

/// Reason to prefer two consumers over three; empty if three may be better.
std::string isForTwo(const GemmShape &shape) {
  // With higher tiles two are faster (H100: 1579 and 1796 us of gpt-oss-120b at
  // 4096 tokens).
  constexpr int64_t maxRowsOfThree = 96;
  if (shape.tile().getConsumers() <= kConsumers ||
      shape.tile().getMaxBlockM() <= maxRowsOfThree)
    return {};
  return "block_m up to " + std::to_string(shape.tile().getMaxBlockM()) +
         " is only tried with two consumers; three are tried up to " +
         std::to_string(maxRowsOfThree);
}

/// Reason why registers do not suffice, according to the measured limits of
/// ptxas; empty if they do.
std::string spills(tile::GemmOp op, const GemmShape &shape) {
  const GemmProblem &problem = shape.problem();
  const TileShape &tile = shape.tile();
  int64_t blockMs = tile.blockM.size(),
          sums = shape.registers().getAccumulators();
  if (problem.promotes && !tile.noSwapAB && blockMs > 1 &&
      (sums > ptxas::kPromotedSums || blockMs > ptxas::kPromotedBlockMs))
    return std::to_string(blockMs) + " values of block_m with " +
           std::to_string(sums) +
           " accumulators leave too few registers for scales; at most " +
           std::to_string(ptxas::kPromotedBlockMs) + " with " +
           std::to_string(ptxas::kPromotedSums) + " are tried";
  int64_t rows =
      std::accumulate(tile.blockM.begin(), tile.blockM.end(), int64_t(0));
  if (tile.getConsumers() > kConsumers &&
      (blockMs > ptxas::kBlockMsOfThree || rows > ptxas::kRowsOfThree ||
       (blockMs > 1 && tile.getMaxBlockM() > ptxas::kRowsOfManyBlockMs)))
    return std::to_string(blockMs) + " values of block_m, with " +
           std::to_string(rows) +
           " rows in all, leave three consumers too few registers; at most " +
           std::to_string(ptxas::kBlockMsOfThree) + " of " +
           std::to_string(ptxas::kRowsOfThree) + " rows in all, each up to " +
           std::to_string(ptxas::kRowsOfManyBlockMs) + ", are tried";
  int64_t maxBlockMs = sums > ptxas::kSumsOfFiveBlockMs
                           ? ptxas::kBlockMsOfManySums
                           : ptxas::kBlockMsOfTwo;
  if (problem.compute == ComputeType::BF16 &&
      problem.scales.input == ScaleTime::InEpilogue)
    maxBlockMs -= ptxas::kBlockMsOfRowScales;
  if (problem.isPrepacked() && blockMs > maxBlockMs)
    return std::to_string(blockMs) + " values of block_m with " +
           std::to_string(sums) +
           " accumulators leave too few registers for prepacked weights; at "
           "most " +
           std::to_string(maxBlockMs) + " are tried";
  // Scales of whole rows add lines, but take no registers of producer threads.
  int64_t most = ptxas::kShortEpilogue;
  for (ScaleTime time : {problem.scales.input, problem.scales.weight})
    most += time == ScaleTime::InEpilogue ? kScaleLines : 0;
  int64_t lines = estimateEpilogue(op);
  if (tile.noSwapAB && problem.promotes && !tile.mapRows &&
      sums > ptxas::kSumsOfAnyEpilogue && lines > most)
    return "an epilogue of about " + std::to_string(lines) + " lines with " +
           std::to_string(sums) +
           " accumulators leaves too few registers if rows and scales are "
           "copied without tensor maps; at most " +
           std::to_string(most) + " are tried";
  if (problem.quantizesInput && sums > ptxas::kQuantizedSums)
    return std::to_string(sums) +
           " accumulators leave too few registers to quantize rows as they "
           "are copied; at most " +
           std::to_string(ptxas::kQuantizedSums) + " are tried";
  if (problem.adapters && tile.getMaxBlockM() > ptxas::kAdapterRows)
    return "block_m up to " + std::to_string(tile.getMaxBlockM()) +
           " leaves too few registers to copy adapters; at most " +
           std::to_string(ptxas::kAdapterRows) + " is tried";
  if (!tile.mapRows && tile.getMaxBlockM() > ptxas::kCopiedRows)
    return "block_m up to " + std::to_string(tile.getMaxBlockM()) +
           " leaves too few registers if rows are copied without tensor maps; "
           "at most " +
           std::to_string(ptxas::kCopiedRows) + " is tried";
  return {};
}

/// Candidate values of BLOCK_K, ascending: one swizzle row; for weights
/// multiplied from registers, several of them side by side, which divide K.
SmallVector<int64_t> getSteps(tile::GemmOp op) {
  auto input = cast<MemRefType>(op.getInput().getType());
  if (!hasPrepackedLayout(op.getWeightQuantAttr()))
    return {kStepBytes * 8 / GemmProblem(op).inputBits};
  constexpr int64_t one = moe::PrepackedFormat::kSizeK, maxTiles = 5;
  SmallVector<int64_t> steps;
  for (int64_t packedTiles = 1; packedTiles <= maxTiles; ++packedTiles)
    if (input.getDimSize(1) % (packedTiles * one) == 0)
      steps.push_back(packedTiles * one);
  return steps;
}

/// Makes a config with as many stages as fit.
tile::ConfigAttr makeConfig(tile::GemmOp op, const Target &target, int64_t n,
                            ArrayRef<int64_t> tileRows, int64_t step,
                            bool mapRows, int64_t maxStages,
                            bool noSwapAB = false,
                            bool dynamicScheduler = false, int64_t l2Rows = 0,
                            int64_t splitK = 0) {
  constexpr int64_t minStages = 3;
  auto make = [&](int64_t stages) {
    return tile::Sm90GemmAttr::get(op->getContext(), tileRows, n, step, stages,
                                   l2Rows, mapRows, noSwapAB, dynamicScheduler,
                                   /*multicast_weights=*/false, splitK);
  };
  auto getBytes = [&](int64_t stages) {
    return getShapeInKernel(op, make(stages)).shared().getBytes();
  };
  // All stages are of equal size.
  int64_t least = getBytes(minStages);
  int64_t perStage = getBytes(minStages + 1) - least;
  int64_t more =
      std::max<int64_t>((target.getSharedBytes() - least) / perStage, 0);
  return make(std::min(minStages + more, maxStages));
}

/// For an unknown number of rows: the widest columns per CTA and the most
/// values of BLOCK_M that ptxas takes less than a second for.
std::pair<int64_t, ArrayRef<int64_t>> chooseTile(tile::GemmOp op) {
  static constexpr int64_t all[] = {16, 32, 64, 96, 128};
  static constexpr int64_t some[] = {32, 96, 128};
  static constexpr int64_t one[] = {128};
  // With e4m3, the sums of a k tile may take registers too.
  static constexpr int64_t lower[] = {16, 32, 64, 112}, lowest[] = {32, 112};
  constexpr int64_t narrow = 128, wide = 256;
  int64_t lines = estimateEpilogue(op);
  // A thread has one result per two rows and 128 columns.
  auto fits = [&](int64_t n, ArrayRef<int64_t> tileRows) {
    int64_t rows =
        std::accumulate(tileRows.begin(), tileRows.end(), int64_t(0));
    return rows / 2 * (n / narrow) * lines <= ptxas::kMaxLinesOfAnyLoad;
  };
  // A gemm with few columns, such as a router's, has few CTAs, so that it gets
  // low tiles.
  constexpr int64_t fewColumns = 1024;
  auto result = cast<MemRefType>(op.getResult().getType());
  if (!op.getOffsets() && result.getDimSize(1) <= fewColumns)
    return {narrow, ArrayRef<int64_t>(all).take_front(2)};
  if (hasPrepackedLayout(op.getWeightQuantAttr()))
    return {narrow / (op.getLayout() ? 2 : 1),
            fits(narrow, all) ? ArrayRef<int64_t>(all) : some};
  if (op.getInputScale()) {
    int64_t n = op.getLayout() || op.quantizesResult() ? narrow : wide;
    return {n, fits(n, lower) ? ArrayRef<int64_t>(lower) : lowest};
  }
  for (ArrayRef<int64_t> tileRows : {ArrayRef<int64_t>(all), {some}, {one}})
    for (int64_t n : {wide, narrow})
      if ((n == narrow || !op.getLayout()) && fits(n, tileRows))
        return {n, tileRows};
  return {narrow, one};
}

} // namespace

namespace {

/// Code-size penalty per value of BLOCK_M, as a share of the kernel's time: the
/// longer the decoding of weights, the more. Measured configs (H100; 19 rows of
/// mxfp4, nvfp4 and int4) lose least with 3e-5 to 1e-4 per clock.
double getPenaltyPerBlockM(tile::GemmOp op, const Target &target) {
  constexpr double penalty = 0.0019, perDecodeClk = 0.7e-4;
  return penalty + perDecodeClk * getDecodeClk(op, *getDeviceRates(target));
}

/// Finds the configs of one gemm for a load, for a number of weight rows per
/// CTA.
class CandidateFinder {
public:
  /// `isAlone`: the gemm is not joined, so that CTAs may use the dynamic
  /// scheduler if there are many tiles, and be in clusters if there are few.
  CandidateFinder(tile::GemmOp op, tile::LoadAttr load, const Target &target,
                  bool isAlone, int64_t step)
      : op(op), target(target), step(step),
        schedule(*findSchedule(target, "sm90.gemm")),
        penaltyPerBlockM(getPenaltyPerBlockM(op, target)),
        model(makeGemmCost(op, load, target)),
        points(getTokenPoints(load.getMinTokens(), load.getMaxTokens())),
        mapRows(mayMapRows(op)),
        maySplit(isAlone && op.getOffsets() && !op.getSignals() &&
                 !op.getAwaits() && !getAdapterTiles(op) &&
                 !op.getQuantizesInput() && points.front() <= 1) {
    if (!op.getOffsets())
      return;
    int64_t groups = cast<MemRefType>(op.getWeight().getType()).getDimSize(0);
    auto countTiles = [&](int64_t tokens, double tileRows) {
      RowCounts counts(load, groups, tokens, Routing::Uniform);
      return std::max(counts.active, counts.rows * double(groups) / tileRows);
    };
    // An expert that has rows has a tile.
    fewestTiles = std::max(1.0, countTiles(points.front(), kSplitRows));
    constexpr double tileRows = 128;
    if (isAlone)
      maxTiles = countTiles(points.back(), tileRows);
  }

  std::vector<Candidate> run(int64_t weightRows);
  /// `chosen` with values of BLOCK_M that suit skewed loads as well.
  tile::ConfigAttr adaptToSkew(tile::Sm90GemmAttr chosen);

private:
  void findFor(int64_t weightRows);
  void add(tile::ConfigAttr config, ArrayRef<int64_t> tileRows,
           std::string whyNot);
  /// Adds configs whose tiles are taken by clusters, where few CTAs would have
  /// tiles.
  void addSplits(int64_t weightRows);
  /// Adds configs with input rows on M.
  void addWithoutSwapAB(int64_t weightRows);
  tile::ConfigAttr make(int64_t weightRows, ArrayRef<int64_t> tileRows,
                        bool noSwapAB = false) {
    constexpr int64_t maxStages = 16;
    int64_t n = weightRows / (op.getLayout() ? 2 : 1);
    return makeConfig(op, target, n, tileRows, step, mapRows, maxStages,
                      noSwapAB, suitsDynamicScheduler(n),
                      getL2Rows(n, tileRows.back()));
  }
  /// Whether CTAs with `n` columns have so many tiles that their times diverge.
  bool suitsDynamicScheduler(int64_t n);
  /// Rows of a raster group for CTAs with `n` columns and tiles of up to
  /// `blockM` rows; 0: no raster groups.
  int64_t getL2Rows(int64_t n, int64_t blockM);
  std::string getWhyNot(tile::ConfigAttr config);
  double getTime(tile::ConfigAttr config, int64_t tokens);

  tile::GemmOp op;
  const Target &target;
  int64_t step;
  const Schedule &schedule;
  double penaltyPerBlockM;
  std::unique_ptr<CostModel> model;
  SmallVector<int64_t> points;
  bool mapRows;
  /// Clusters may share tiles. Dense gemms mostly run beside other launches,
  /// whose CTAs would leave clusters no place.
  bool maySplit;
  /// Approximate number of M tiles at the fewest tokens.
  double fewestTiles = 0;
  /// Approximate number of M tiles at the most tokens; 0 without the dynamic
  /// scheduler.
  double maxTiles = 0;
  std::vector<Candidate> candidates;
};

bool CandidateFinder::suitsDynamicScheduler(int64_t n) {
  constexpr double rounds = 4;
  int64_t columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  return maxTiles * double(llvm::divideCeil(columns, n)) >=
         rounds * double(target.getMultiprocessors());
}

int64_t CandidateFinder::getL2Rows(int64_t n, int64_t blockM) {
  const DeviceRates *device = getDeviceRates(target);
  auto weight = cast<MemRefType>(op.getWeight().getType());
  if (!device || (op.getOffsets() && !suitsDynamicScheduler(n)))
    return 0;
  auto input = cast<MemRefType>(op.getInput().getType());
  double rowBytes = double(input.getShape().back()) *
                    double(input.getElementTypeBitWidth()) / 8;
  // Assumes that all tokens may go to one expert. If only few rows more than
  // that stay in the cache, the extra arithmetic to find tiles does not pay.
  constexpr double several = 2;
  if (double(points.back()) * rowBytes <= several * device->rasterGroupBytes)
    return 0;
  if (!op.getOffsets()) {
    // If all weights stay in the cache, neighbours share the rows of one tile.
    int64_t weightRows = weight.getDimSize(0);
    bool hasNTiles = weightRows > n * (op.getLayout() ? 2 : 1);
    bool doStay = double(weightRows) * rowBytes <= device->rasterGroupBytes;
    return hasNTiles && doStay ? blockM : 0;
  }
  constexpr int64_t whole = 8;
  return llvm::alignDown(
      static_cast<int64_t>(device->rasterGroupBytes / rowBytes), whole);
}

std::string CandidateFinder::getWhyNot(tile::ConfigAttr config) {
  std::string whyNot = schedule.whyIllegal(op, config, target);
  if (!whyNot.empty())
    return whyNot;
  GemmShape shape(op, config);
  whyNot = takesLong(op, shape);
  if (whyNot.empty())
    whyNot = isForTwo(shape);
  return whyNot.empty() ? spills(op, shape) : whyNot;
}

/// The weighted mean over routings.
double CandidateFinder::getTime(tile::ConfigAttr config, int64_t tokens) {
  double us = 0;
  for (WeightedRouting routing : getWeightedRoutings())
    us += routing.weight * model->predict(config, tokens, routing.routing).us;
  return us;
}

void CandidateFinder::add(tile::ConfigAttr config, ArrayRef<int64_t> tileRows,
                          std::string whyNot) {
  Candidate &candidate = candidates.emplace_back();
  candidate.config = config;
  candidate.penalty = penaltyPerBlockM * double(tileRows.size());
  candidate.whyNot = std::move(whyNot);
}

void CandidateFinder::findFor(int64_t weightRows) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double least = 0.004;
  // A null config: none is possible.
  std::map<BlockMs, tile::ConfigAttr> configs;
  auto getPointTime = [&](const BlockMs &tileRows, size_t point) {
    auto [entry, isNew] = configs.try_emplace(tileRows);
    if (isNew) {
      tile::ConfigAttr config = make(weightRows, tileRows);
      if (getWhyNot(config).empty())
        entry->second = config;
    }
    return entry->second ? getTime(entry->second, points[point]) : infinity;
  };
  for (const BlockMs &tileRows :
       growBlockMs(getBlockMs(), points.size(), least, getPointTime))
    add(make(weightRows, tileRows), tileRows, {});
  // Reason why there are no higher tiles.
  int64_t highest = 0;
  for (const auto &[tileRows, config] : configs)
    if (config)
      highest = std::max(highest, tileRows.back());
  for (int64_t blockM : getBlockMs())
    if (blockM > highest) {
      tile::ConfigAttr config = make(weightRows, blockM);
      return add(config, blockM, getWhyNot(config));
    }
}

void CandidateFinder::addWithoutSwapAB(int64_t weightRows) {
  // Rests of groups get lower tiles, which swap A and B.
  for (const BlockMs &high : {BlockMs{64}, {128}, {64, 128}})
    for (const BlockMs &rests : {BlockMs(), {16}, {32}, {48}, {16, 32}}) {
      BlockMs tileRows = rests;
      tileRows.append(high);
      tile::ConfigAttr config = make(weightRows, tileRows, /*noSwapAB=*/true);
      add(config, tileRows, getWhyNot(config));
    }
}

/// For ranges from one token on, where all clusters run at once: splits for two
/// tokens alone took a range from more tokens, which lost 20 % (H200,
/// dsv4_tp16_mxfp4).
void CandidateFinder::addSplits(int64_t weightRows) {
  int64_t blockN = weightRows / (op.getLayout() ? 2 : 1);
  int64_t columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto multiprocessors = double(target.getMultiprocessors());
  if (fewestTiles * double(llvm::divideCeil(columns, blockN)) * 2 >
      multiprocessors)
    return;
  // Consumers that share a block have half of the rows each.
  constexpr int64_t leastSteps = 2;
  GemmProblem problem(op);
  int64_t low = weightRows == kBlockRows ? 16 : 8;
  for (int64_t ctas : {2, 4, 8})
    for (const BlockMs &tileRows : {BlockMs{low}, {low, kSplitRows}}) {
      constexpr int64_t maxStages = 16;
      tile::ConfigAttr config =
          makeConfig(op, target, blockN, tileRows, step, mapRows, maxStages,
                     /*noSwapAB=*/false, /*dynamicScheduler=*/false,
                     /*l2Rows=*/0, ctas);
      TileShape tile(problem, cast<tile::Sm90GemmAttr>(config));
      if (tile.getLeastKTiles() >= leastSteps &&
          fewestTiles * double(tile.getNTiles() * ctas) <= multiprocessors &&
          getWhyNot(config).empty())
        add(config, tileRows, {});
    }
}

std::vector<Candidate> CandidateFinder::run(int64_t weightRows) {
  findFor(weightRows);
  if (maySplit)
    addSplits(weightRows);
  // With rows on M and scales per k tile, a thread then has the scales of two
  // rows. Promotion without scales leaves as few registers for others.
  constexpr int64_t fewest = 128;
  if (weightRows < fewest)
    return std::move(candidates);
  GemmProblem problem(op);
  if (problem.copiesScales() || (problem.promotes && !problem.isPrepacked()))
    addWithoutSwapAB(weightRows);
  return std::move(candidates);
}

tile::ConfigAttr CandidateFinder::adaptToSkew(tile::Sm90GemmAttr chosen) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  BlockMs chosenRows(chosen.getBlockM());
  int64_t weightRows = chosen.getBlockN() * (op.getLayout() ? 2 : 1);
  std::map<BlockMs, tile::ConfigAttr> configs{{chosenRows, chosen}};
  auto getTime = [&](const BlockMs &tileRows, size_t point, bool isSkewed) {
    auto [entry, isNew] = configs.try_emplace(tileRows);
    if (isNew) {
      tile::ConfigAttr config =
          make(weightRows, tileRows, chosen.getNoSwapAb());
      if (getWhyNot(config).empty())
        entry->second = config;
    }
    Routing routing = isSkewed ? Routing::Zipf : Routing::Uniform;
    return entry->second
               ? model->predict(entry->second, points[point], routing).us
               : infinity;
  };
  return configs.at(adaptBlockMs(getBlockMs(), chosenRows, points.size(),
                                 penaltyPerBlockM, getTime));
}

/// Searches the candidates for all numbers of weight rows and all values of
/// BLOCK_K in parallel: most of the time to lower a layer is spent here.
std::vector<Candidate> findCandidates(tile::GemmOp op, tile::LoadAttr load,
                                      const Target &target, bool isAlone) {
  static constexpr int64_t fromShared[] = {64, 128, 256},
                           fromRegisters[] = {128, 192, 256};
  ArrayRef<int64_t> weightRows = hasPrepackedLayout(op.getWeightQuantAttr())
                                     ? ArrayRef<int64_t>(fromRegisters)
                                     : fromShared;
  SmallVector<std::pair<int64_t, int64_t>> kinds;
  for (int64_t step : getSteps(op))
    for (int64_t rows : weightRows)
      kinds.push_back({rows, step});
  std::vector<std::vector<Candidate>> found(kinds.size());
  parallelFor(op.getContext(), 0, kinds.size(), [&](size_t i) {
    auto [rows, step] = kinds[i];
    found[i] = CandidateFinder(op, load, target, isAlone, step).run(rows);
  });
  std::vector<Candidate> all;
  for (std::vector<Candidate> &some : found)
    llvm::append_range(all, some);
  return all;
}

} // namespace

int64_t sm90::estimateLines(tile::GemmOp op, const GemmShape &shape) {
  constexpr int64_t perColumns = 128;
  // High tiles are short of registers, and ptxas takes longer for each line.
  int64_t rows = 0;
  for (int64_t blockM : shape.tile().blockM)
    rows += blockM > ptxas::kSlowRows ? ptxas::kSlowness * blockM : blockM;
  // A thread has one result per two rows and 128 columns.
  return rows * shape.tile().blockN * estimateEpilogue(op) / (2 * perColumns);
}

std::pair<int64_t, int64_t> sm90::getLargestTile(tile::ConfigAttr candidate) {
  if (auto gemm = dyn_cast<tile::Sm90GemmAttr>(candidate))
    return {gemm.getBlockN(), gemm.getBlockM().back()};
  auto gemv = cast<tile::GpuGemvAttr>(candidate);
  return {gemv.getBlockN(), gemv.getBlockM()};
}

std::vector<Candidate> sm90::getGemmCandidates(Operation *op,
                                               tile::LoadAttr load,
                                               const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  if (cast<MemRefType>(gemm.getWeight().getType()).getElementTypeBitWidth() >
          16 ||
      !declineQuant(gemm).empty())
    return {};
  // Joined gemms have no dynamic scheduler.
  bool isAlone = !getPartner(gemm);
  std::vector<Candidate> candidates =
      findCandidates(gemm, load, target, isAlone);
  llvm::append_range(candidates, anygpu::getGemvCandidates(gemm));
  return candidates;
}

std::vector<Candidate> sm90::getOrderedCandidates(Operation *op,
                                                  tile::LoadAttr load,
                                                  const Target &target) {
  return findCandidates(cast<tile::GemmOp>(op), load, target,
                        /*isAlone=*/false);
}

tile::ConfigAttr sm90::adaptToSkew(Operation *op, tile::LoadAttr load,
                                   const Target &target,
                                   tile::ConfigAttr chosen) {
  auto config = dyn_cast<tile::Sm90GemmAttr>(chosen);
  // In a fixed order unequal tiles cost more than their padding.
  if (!config || !config.getDynamicScheduler())
    return chosen;
  return CandidateFinder(cast<tile::GemmOp>(op), load, target,
                         /*isAlone=*/true, config.getBlockK())
      .adaptToSkew(config);
}

tile::ConfigAttr sm90::chooseGemm(Operation *op, const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  auto kernel = op->getParentOfType<tile::KernelOp>();
  if (tile::LoadAttr load = kernel.getLoadAttr()) {
    const Schedule *schedule = findSchedule(target, "sm90.gemm");
    for (const Candidate &candidate :
         enumerateCandidates(op, *schedule->as<ModelsTime>(), target, load))
      if (candidate.whyNot.empty() &&
          candidate.config.getSchedule() == schedule->name)
        return candidate.config;
  }
  auto [n, tileRows] = chooseTile(gemm);
  bool mapRows = mayMapRows(gemm);
  constexpr int64_t maxStages = 8;
  return makeConfig(gemm, target, n, tileRows, getSteps(gemm).back(), mapRows,
                    maxStages);
}

std::string sm90::whySpills(Operation *op, tile::ConfigAttr config) {
  auto gemm = cast<tile::GemmOp>(op);
  return spills(gemm, GemmShape(gemm, config));
}
