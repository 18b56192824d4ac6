//===- TileShape.cpp - tiles of a gemm of sm90.gemm -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TileShape.h"

using namespace moec;
using namespace moec::sm90;

TileShape::TileShape(const GemmProblem &problem, tile::Sm90GemmAttr config)
    : blockM(config.getBlockM()), blockN(config.getBlockN()),
      blockK(config.getBlockK()), stages(config.getStages()),
      l2Rows(config.getL2Rows()), mapRows(config.getMapRows()),
      noSwapAB(config.getNoSwapAb()),
      hasDynamicScheduler(config.getDynamicScheduler()),
      multicastsWeights(config.getMulticastWeights()),
      splitK(std::max<int64_t>(config.getSplitK(), 1)),
      kTileBytes(blockK * problem.inputBits / 8),
      swizzleRows(kTileBytes / problem.swizzleBytes),
      launchColumns(problem.launchColumns), sizeK(problem.sizeK),
      weightsPerColumn(problem.weightsPerColumn),
      isPrepacked(problem.isPrepacked()),
      isE4M3(problem.compute == ComputeType::E4M3), promotes(problem.promotes) {
}

bool TileShape::hasTwoBlockMs() const {
  for (size_t i = 1; i < blockM.size(); ++i)
    if (mixesBlockMs(blockM[i - 1], blockM[i]))
      return true;
  return false;
}

int64_t TileShape::getChainedTiles(const moe::PrepackedFormat &format,
                                   int64_t blockM) const {
  if (getBlocks(blockM) > 1 || format.getGroups() > 1)
    return 1;
  int64_t tiles = format.getGroupTiles();
  return swizzleRows % tiles ? 1 : tiles;
}
