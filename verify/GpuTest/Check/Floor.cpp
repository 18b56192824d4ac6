//===- Floor.cpp - least time of a layer ------------------------*- C++ -*-===//
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
  // Weights with their scales and biases.
  double expertBytes = 0, sharedBytes = 0;
  for (const TensorInfo &tensor : getTensorSignature(spec)) {
    double bytes = static_cast<double>(getStorageBits(tensor.type)) / 8;
    for (int64_t extent : tensor.shape)
      bytes *= static_cast<double>(extent);
    llvm::StringRef name = tensor.name;
    if (name.starts_with("experts."))
      expertBytes += bytes / static_cast<double>(spec.getNumLocalExperts());
    else if (name.starts_with("shared_experts."))
      sharedBytes += bytes;
  }
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
  floor.bytes = static_cast<double>(load.activeExperts) * expertBytes +
                sharedBytes + size * (dense + 2 * calls * hidden);
  return floor;
}
