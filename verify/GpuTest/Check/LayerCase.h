//===- LayerCase.h - runs a case of a layer ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_CHECK_LAYERCASE_H
#define MOEC_VERIFY_GPUTEST_CHECK_LAYERCASE_H

#include "../Cases/Case.h"
#include "../Options.h"
#include "../Run/CompiledLayers.h"
#include "moec/Generator/GeneratorKernel.h"

namespace moec::gputest {

/// State shared by cases. Only one case at a time uses the device; the rest of
/// each case runs in parallel.
struct SuiteContext {
  moert::Device &device;
  DeviceGenerator &generator;
  CompiledLayers &layers;
  /// Whether it is a GPU, not a simulator: it has graphs and a clock.
  bool isGpu = false;
  int threads = 0;
  Plant plant = Plant::None;
  std::mutex deviceMutex;
};

Outcome runLayerCase(SuiteContext &context, const LayerCase &layerCase);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_CHECK_LAYERCASE_H
