//===- Floor.cpp - the least time that a layer can take ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Floor.h"

using namespace moec;
using namespace moec::gputest;

Floor moec::gputest::getFloor(const LayerSpec &spec, int64_t tokens,
                              const Load &load) {
  auto hidden = static_cast<double>(spec.hiddenSize);
  auto width = static_cast<double>(spec.getExpertWidth());
  auto calls = static_cast<double>(tokens);
  double size = spec.dtype == DType::F32 ? 4 : 2;
  // Of the experts' weights; scales are not worth a term.
  double expertSize = spec.quantization
                          ? double(getStorageBits(getTensorType(
                                spec.quantization->weight.storage))) /
                                8
                          : size;
  auto countElements = [&](int64_t intermediate, double inputs) {
    return static_cast<double>(spec.getFirstProductRows(intermediate) +
                               intermediate) *
           inputs;
  };
  double expert = countElements(spec.intermediateSize, width);
  double dense = 0, shared = 0;
  if (spec.entry == Entry::Gate)
    dense += static_cast<double>(spec.getNumRouted()) * hidden;
  if (spec.sharedExperts)
    shared = countElements(spec.sharedExperts->intermediateSize, hidden);
  if (spec.latentSize)
    dense += 2 * hidden * width;
  Floor floor;
  floor.operations =
      2 * (static_cast<double>(load.rows) * expert + calls * (dense + shared));
  floor.bytes =
      expertSize * (static_cast<double>(load.activeExperts) * expert + shared) +
      size * (dense + 2 * calls * hidden);
  return floor;
}
