//===- Choice.cpp - the schedule gpu.gemv -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Choice and cost of gpu.gemv, for dense gemms of few rows with few columns,
// such as a router's: as tiles they would be a few CTAs, each of which iterates
// over all of K.

#include "Choice.h"

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace moec;
using namespace moec::anygpu;

Gemv::Gemv(tile::GemmOp op, tile::ConfigAttr attr) {
  auto config = cast<tile::GpuGemvAttr>(attr);
  m = config.getBlockM();
  n = config.getBlockN();
  k = config.getBlockK();
  threads = config.getThreads();
  auto weight = cast<MemRefType>(op.getWeight().getType());
  sizeK = weight.getShape().back();
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  elementBytes = weight.getElementTypeBitWidth() / 8;
}

//===----------------------------------------------------------------------===//
// Configs
//===----------------------------------------------------------------------===//

/// Threads that split K.
static constexpr int64_t kMaxThreads = 512;

/// Reason to decline the op that no config can remove; empty if there is none.
static std::string declineGemv(tile::GemmOp op) {
  if (op.getOffsets())
    return "the gemm is grouped; only a dense gemm is supported";
  if (op.getLayout())
    return "the gemm has gate and up rows; only a gemm without a layout is "
           "supported";
  auto weight = cast<MemRefType>(op.getWeight().getType());
  if (op.getInputQuantAttr() || op.getWeightQuantAttr())
    return "the gemm has quantized operands; only elements of 16 and 32 bits "
           "are supported";
  int64_t rowBytes =
      weight.getShape().back() * weight.getElementTypeBitWidth() / 8;
  if (rowBytes % Gemv::kChunkBytes)
    return "a row of weights has " + number(rowBytes) +
           " bytes, not a multiple of the 16 read at a time";
  return {};
}

/// Reason why FMAs cannot be used; empty if they can.
static std::string fmaIllegal(const Gemv &shape) {
  for (auto [field, value] : {std::pair<StringRef, int64_t>{"block_m", shape.m},
                              {"block_n", shape.n}})
    if (value <= 0 || value > ptxas::kGemvSums || !llvm::isPowerOf2_64(value))
      return (field + " = " + Twine(value) + "; give a power of two up to " +
              Twine(ptxas::kGemvSums))
          .str();
  if (shape.m * shape.n > ptxas::kGemvSums)
    return "block_m = " + number(shape.m) + ", block_n = " + number(shape.n) +
           " needs " + number(shape.m * shape.n) +
           " sums per thread; give at most " + number(ptxas::kGemvSums);
  return {};
}

/// Reason why tensor cores cannot be used; empty if they can.
static std::string tensorIllegal(const Gemv &shape) {
  if (shape.k != Gemv::kTensorK)
    return "block_k = " + number(shape.k) + "; give " + number(Gemv::kTensorK) +
           " for tensor cores, or 0";
  if (shape.elementBytes != 2)
    return "block_k = " + number(shape.k) +
           ", but tensor cores need elements of 16 bits; give 0";
  if (shape.sizeK % Gemv::kTensorK)
    return "block_k = " + number(shape.k) + ", but rows have " +
           number(shape.sizeK) + " elements; give 0";
  if (shape.m != 16 && shape.m != 32)
    return "block_m = " + number(shape.m) +
           "; give 16 or 32 with block_k = " + number(shape.k);
  if (shape.n < 8 || shape.n > 64 || !llvm::isPowerOf2_64(shape.n))
    return "block_n = " + number(shape.n) +
           "; give 8, 16, 32 or 64 with block_k = " + number(shape.k);
  if (shape.getSumBytes() > kStaticSharedBytes)
    return "block_m = " + number(shape.m) + ", block_n = " + number(shape.n) +
           ", threads = " + number(shape.threads) + " needs " +
           number(shape.getSumBytes()) + " bytes of shared memory; there are " +
           number(kStaticSharedBytes);
  return {};
}

std::string anygpu::gemvIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &) {
  auto gemm = cast<tile::GemmOp>(op);
  if (std::string reason = declineGemv(gemm); !reason.empty())
    return reason;
  Gemv shape(gemm, config);
  if (shape.threads <= 0 || shape.threads % kWarp ||
      shape.threads > kMaxThreads)
    return "threads = " + number(shape.threads) +
           "; give a multiple of 32 up to " + number(kMaxThreads);
  return shape.usesTensorCores() ? tensorIllegal(shape) : fmaIllegal(shape);
}

/// As many threads as there are chunks, with equal numbers of chunks per
/// thread.
static tile::ConfigAttr makeGemvConfig(tile::GemmOp op, int64_t m, int64_t n) {
  auto make = [&](int64_t threads) {
    return tile::GpuGemvAttr::get(op->getContext(), m, n, /*step=*/0, threads);
  };
  int64_t chunks = std::max<int64_t>(Gemv(op, make(kWarp)).getChunks(), 1);
  int64_t perThread = llvm::divideCeil(chunks, kMaxThreads);
  return make(llvm::alignTo(llvm::divideCeil(chunks, perThread), kWarp));
}

/// The config with tensor cores: as many warps as there is memory for their
/// sums.
static tile::ConfigAttr makeTensorConfig(tile::GemmOp op, int64_t m,
                                         int64_t n) {
  constexpr int64_t maxThreads = 256;
  for (int64_t threads = maxThreads;; threads /= 2) {
    auto config =
        tile::GpuGemvAttr::get(op->getContext(), m, n, Gemv::kTensorK, threads);
    Gemv shape(op, config);
    if (threads == kWarp || (shape.getSumBytes() <= kStaticSharedBytes &&
                             shape.getWarps() <= shape.getTensorSteps()))
      return config;
  }
}

tile::ConfigAttr anygpu::chooseGemv(Operation *op, const Target &) {
  constexpr int64_t maxRows = 8;
  auto kernel = op->getParentOfType<tile::KernelOp>();
  auto gemm = cast<tile::GemmOp>(op);
  int64_t rows = maxRows, columns = ptxas::kGemvSums / maxRows;
  if (tile::LoadAttr load = kernel.getLoadAttr();
      load && load.getMaxTokens() <= maxRows) {
    rows = llvm::bit_ceil(uint64_t(std::max<int64_t>(load.getMaxTokens(), 1)));
    columns = 1;
  }
  int64_t all = cast<MemRefType>(gemm.getResult().getType()).getDimSize(1);
  columns = std::min<int64_t>(columns, llvm::bit_ceil(uint64_t(all)));
  return makeGemvConfig(gemm, rows, columns);
}

moert::Expr anygpu::gemvGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  auto gemm = cast<tile::GemmOp>(op);
  Gemv shape(gemm, config);
  moert::Expr tiles = rowBlocks(shape.m) * moert::Expr(shape.getNTiles());
  return gemm.getCleared() ? moert::Expr::max(tiles, 1) : tiles;
}

int64_t anygpu::gemvBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuGemvAttr>(config).getThreads();
}

bool anygpu::isGemvPreferred(Operation *op) {
  constexpr int64_t few = 4;
  auto gemm = cast<tile::GemmOp>(op);
  auto result = cast<MemRefType>(gemm.getResult().getType());
  return result.getDimSize(1) <= few && declineGemv(gemm).empty();
}

/// Threads or warps that split K take chunks in turn. The tree over the lanes
/// of a warp does not depend on the number of sums.
tile::SumOrderAttr anygpu::getGemvOrder(tile::GemmOp op,
                                        tile::ConfigAttr config) {
  Gemv shape(op, config);
  if (shape.usesTensorCores())
    return tile::SumOrderAttr::get(
        op.getContext(), tile::SumUnit::TensorCore, Gemv::kTensorK / 2,
        /*shuffled=*/Gemv::kTensorK, shape.getWarps(),
        /*adjacent=*/shape.getWarps() > 1 ? Gemv::kTensorK : 0,
        /*promoted=*/0, /*joined=*/false);
  return tile::SumOrderAttr::get(op.getContext(), tile::SumUnit::Fma, /*k=*/1,
                                 /*shuffled=*/0, shape.threads,
                                 shape.getChunkElements(), /*promoted=*/0,
                                 /*joined=*/false);
}

int64_t anygpu::gemvShared(Operation *, tile::ConfigAttr) { return 0; }

//===----------------------------------------------------------------------===//
// Cost
//===----------------------------------------------------------------------===//

std::vector<Candidate> anygpu::getGemvCandidates(tile::GemmOp op) {
  constexpr int64_t maxColumns = 1024;
  constexpr std::pair<int64_t, int64_t> shapes[] = {
      {1, 1}, {1, 2}, {2, 1}, {4, 1}, {8, 1}, {8, 2}, {8, 4}};
  std::vector<Candidate> candidates;
  auto result = cast<MemRefType>(op.getResult().getType());
  if (op.getOffsets() || result.getDimSize(1) > maxColumns)
    return candidates;
  for (auto [m, n] : shapes)
    candidates.emplace_back().config = makeGemvConfig(op, m, n);
  for (int64_t m : {16, 32})
    for (int64_t n : {8, 16, 32, 64})
      candidates.emplace_back().config = makeTensorConfig(op, m, n);
  return candidates;
}

/// Each CTA reads its rows and columns from L2; all CTAs together read each
/// once from memory.
Prediction anygpu::predictGemv(tile::GemmOp op, tile::ConfigAttr config,
                               int64_t tokens, const DeviceRates &device) {
  Gemv shape(op, config);
  double sms = double(device.multiprocessors);
  double rowBytes = double(shape.sizeK * shape.elementBytes);
  double resultBytes =
      double(tokens * shape.columns) *
      double(getElementTypeOrSelf(op.getResult()).getIntOrFloatBitWidth()) / 8;
  double weightBytes = double(shape.columns) * rowBytes;
  double inputBytes = double(tokens) * rowBytes;
  double bytes = weightBytes;
  for (double tensor : {inputBytes, resultBytes})
    if (tensor > device.l2KeptBytes)
      bytes += tensor;

  Prediction result;
  result.items = double(llvm::divideCeil(tokens, shape.m) * shape.getNTiles());
  result.waves = std::ceil(result.items / sms);
  result.activeGroups = 1;
  result.padding = double(tokens == 1 ? 1 : llvm::alignTo(tokens, shape.m)) /
                   double(std::max<int64_t>(tokens, 1));
  double operations = 2 * double(tokens * shape.columns) * double(shape.sizeK);
  result.floorUs = 1e6 * std::max(bytes / device.readBytes,
                                  operations / device.bf16Operations);
  // Few CTAs do not saturate the bus.
  result.streamUs =
      1e6 * std::max(bytes / (device.readBytes * device.streamShare),
                     double(shape.n) * rowBytes / device.smReadBytes);
  double readRows = double(std::min(shape.m, std::max<int64_t>(tokens, 1)));
  double itemBytes = (readRows + double(shape.n)) * rowBytes;
  // Measured: chunks loaded by threads arrive at 5.8 TB/s.
  constexpr double chunkShare = 0.43;
  double l2BytesPerClk = chunkShare * device.l2BytesPerClk;
  result.l2Us = 1e6 / device.tensorClock *
                std::max(result.items * itemBytes / l2BytesPerClk,
                         result.waves * itemBytes / device.smL2BytesPerClk);
  // A single row is computed without padding. Lines per SM: multiplications,
  // conversions to f32, and sums across lanes.
  constexpr double perElement = 1.5, perSum = 4, inARow = 1.5;
  int64_t rows = tokens == 1 && !shape.usesTensorCores() ? 1 : shape.m;
  double sums = double(rows * shape.n);
  double lines = perSum * sums;
  if (shape.usesTensorCores()) {
    // Half of the rate of tensor cores with operands in shared memory.
    constexpr double perInstruction = 16 * 8 * 16, share = 0.5;
    lines *= double(shape.getWarps());
    double instructions = sums * double(shape.sizeK) / perInstruction;
    lines += instructions * 2 * perInstruction /
             (share * device.operationsPerClk) * device.instructionsPerClk;
  } else {
    lines *= double(shape.threads);
    lines += double(shape.sizeK) * (sums + perElement * double(rows + shape.n));
  }
  result.tensorUs = 1e6 * inARow * result.waves * lines /
                    device.instructionsPerClk / device.tensorClock;
  // A warp with tensor cores waits for a few k tiles at a time.
  double waitUs = 0;
  if (shape.usesTensorCores())
    waitUs =
        device.latencyUs * result.waves *
        double(llvm::divideCeil(shape.getTensorSteps(),
                                shape.getWarps() * shape.getStepsAtOnce()));
  // One more wait for memory than a launch: for the first bytes.
  result.fixedUs = device.launchUs + device.firstBytesUs + device.drainUs;
  double order = device.overlapOrder;
  result.us = result.fixedUs + std::pow(std::pow(result.streamUs, order) +
                                            std::pow(result.tensorUs, order) +
                                            std::pow(waitUs, order) +
                                            std::pow(result.l2Us, order),
                                        1 / order);
  return result;
}

const Schedule &moec::getGpuGemvSchedule() { return getOnly<GemvSchedule>(); }
