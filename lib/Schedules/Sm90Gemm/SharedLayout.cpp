//===- SharedLayout.cpp - shared memory of sm90.gemm ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SharedLayout.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace moec;
using namespace moec::sm90;

ResultStaging::ResultStaging(const GemmProblem &problem, const TileShape &tile,
                             int64_t blockM)
    : columns(tile.getConsumerColumns(blockM)) {
  if (!tile.swapsAB(blockM))
    columns = std::min(columns, kStagedBytes / problem.resultBytes);
  stride = columns * problem.resultBytes + kChunkBytes;
}

/// Staging bytes of a consumer; 0 for f32 results, which threads store
/// themselves. A chunk of padding between the columns of its warps is included,
/// because stages and values of BLOCK_M were chosen, and measured, with it.
static int64_t getOwnStagingBytes(const GemmProblem &problem,
                                  const TileShape &tile) {
  int64_t bytes = 0;
  if (problem.resultBytes > 2)
    return bytes;
  for (int64_t blockM : tile.blockM) {
    ResultStaging staging(problem, tile, blockM);
    int64_t columns = tile.swapsAB(blockM)
                          ? tile.getBlocks(blockM) * tile.getWarpColumns(blockM)
                          : staging.columns;
    int64_t apart = columns * problem.resultBytes;
    if (apart > kChunkBytes)
      apart += kChunkBytes;
    bytes = std::max({bytes, staging.getBytes(), 4 * kStagedRows * apart});
  }
  return bytes;
}

static bool isEachBufferEqual(const GemmProblem &problem,
                              const TileShape &tile) {
  int64_t first = tile.blockM.front();
  return llvm::all_of(tile.blockM, [&](int64_t blockM) {
    return tile.swapsAB(blockM) == tile.swapsAB(first) &&
           ResultStaging(problem, tile, blockM).stride ==
               ResultStaging(problem, tile, first).stride;
  });
}

static int64_t getOwnScaleBytes(const GemmProblem &problem,
                                const TileShape &tile) {
  if (problem.packed)
    return tile.getWeightBlocks() * tile.getScaleCopies(*problem.packed) *
           problem.packed->scaleBytes;
  int64_t count =
      problem.copiesScales() ? tile.getMaxBlockM() + tile.getWeightScales() : 0;
  return int64_t(llvm::alignTo(count * kScaleElementBytes, kChunkBytes));
}

static int64_t countSharedRows(const GemmProblem &problem,
                               const TileShape &tile) {
  constexpr int64_t atOnce = 64;
  int64_t rows = 0;
  for (int64_t blockM : tile.blockM)
    if (problem.findsScales && !tile.splitsRows(blockM))
      rows = std::max(rows, int64_t(llvm::alignTo(blockM, atOnce)));
  return rows;
}

SharedLayout::SharedLayout(const GemmProblem &problem, const TileShape &tile)
    : stages(tile.stages), consumers(tile.getConsumers()),
      groups(problem.groups), swizzleBytes(problem.swizzleBytes),
      weightBytes(problem.packed ? tile.getWeightBlocks() * tile.swizzleRows *
                                       problem.packed->valueBytes
                                 : tile.getWeightRows() * kStepBytes),
      rawRowBytes(problem.quantizesInput ? tile.blockK * kRawBits / 8 : 0),
      stageBytes(weightBytes +
                 tile.swizzleRows * getSwizzledBytes(tile.getMaxBlockM()) +
                 rawRowBytes * tile.getMaxBlockM()),
      scaleBytes(getOwnScaleBytes(problem, tile)),
      stagingBytes(getOwnStagingBytes(problem, tile)),
      exchangeBytes(tile.sharesBlock() ? kBlockRows * tile.getMaxBlockM() * 4
                                       : 0),
      shareBytes((tile.splitK - 1) * tile.getWeightRows() *
                 tile.getMaxBlockM() * 4),
      sharedRows(countSharedRows(problem, tile)),
      isOneBuffer(isEachBufferEqual(problem, tile)),
      hasDynamicScheduler(tile.hasDynamicScheduler),
      hasBook(problem.hasBook()) {}

void SharedLayout::shareWith(const SharedLayout &other) {
  stageBytes = std::max(stageBytes, other.stageBytes);
  scaleBytes = std::max(scaleBytes, other.scaleBytes);
  stagingBytes = std::max(stagingBytes, other.stagingBytes);
  sharedRows = std::max(sharedRows, other.sharedRows);
  exchangeBytes = std::max(exchangeBytes, other.exchangeBytes);
  isOneBuffer &= other.stagingBytes == 0;
}
