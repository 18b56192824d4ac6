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

/// A cluster is in one GPC: of the 8 of an H200, some have 16 multiprocessors
/// and some 18, two of which are idle with clusters of 4 or 8.
int64_t TileShape::countResidentCtas(int64_t multiprocessors) const {
  constexpr int64_t gpcs = 8, pair = 2;
  int64_t ctas = getClusterCtas();
  int64_t together = ctas > pair ? gpcs * ctas : ctas;
  return multiprocessors / together * together;
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
