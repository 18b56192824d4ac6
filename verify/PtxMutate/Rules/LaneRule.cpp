//===- LaneRule.cpp - shuffles of values common to all lanes ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Mutants/Edit.h"
#include "Rules.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;

bool mutate::isSameInAllLanes(const Flow &flow, const Mutant &mutant) {
  constexpr uint32_t kAll = ~uint32_t(0);
  constexpr unsigned kLanes = 32, kOperands = 5;
  const RawInstruction &shuffle = flow.kernel.instructions[mutant.index];
  unsigned threads = flow.kernel.requiredThreads;
  if (mutant.kind != "lane" || !has(shuffle, "idx") || !shuffle.guard.empty() ||
      shuffle.operands.size() != kOperands || threads == 0 ||
      threads % kLanes != 0)
    return false;
  const RawOperand &clamp = shuffle.operands[3], &mask = shuffle.operands[4];
  if (!clamp.isNumber() || clamp.bits != kLanes - 1 || !mask.isNumber() ||
      uint32_t(mask.bits) != kAll)
    return false;
  std::optional<Affine> value = flow.affine(shuffle.operands[1], Scope::Warp);
  return value && value->stride == 0;
}
