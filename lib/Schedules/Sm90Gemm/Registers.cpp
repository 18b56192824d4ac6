//===- Registers.cpp - registers of a gemm of sm90.gemm ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Registers.h"

#include "moec/Support/Parts.h"

#include "llvm/Support/MathExtras.h"

using namespace moec;
using namespace moec::sm90;

/// Accumulator registers of a consumer thread; with promotion, those of a k
/// tile too.
static int64_t countAccumulators(const GemmProblem &problem,
                                 const TileShape &tile) {
  int64_t blockM = tile.getMaxBlockM();
  return (tile.getBlocks(blockM) + problem.promotes) *
         tile.getProductWidth(blockM) / 2;
}

RegisterBudget::RegisterBudget(const GemmProblem &problem,
                               const TileShape &tile)
    : RegisterBudget({tile.getMaxBlockM(), int64_t(tile.blockM.size()),
                      countAccumulators(problem, tile), tile.noSwapAB,
                      problem.promotes, tile.mapRows && !problem.adapters,
                      problem.copiesScales(), problem.quantizesInput,
                      problem.isPrepacked(), tile.getConsumers(),
                      tile.splitK > 1}) {
  if (problem.adapters)
    producer = std::max(producer, ptxas::kAdapterCopying);
}

void RegisterBudget::shareWith(const RegisterBudget &other) {
  producer = std::max(producer, other.producer);
  accumulators = std::max(accumulators, other.accumulators);
  shape.quantizesRows |= other.shape.quantizesRows;
}

int64_t RegisterBudget::getRegisters() const {
  return getRegisterShare(hasReducedRegisters() ? 2 : 1,
                          (1 + shape.consumers) * kWarpgroup);
}

int64_t RegisterBudget::getConsumerRegisters() const {
  int64_t left =
      (shape.consumers + 1) * getRegisters() - getProducerRegisters();
  return llvm::alignDown(left / shape.consumers, kRegisterUnit);
}
