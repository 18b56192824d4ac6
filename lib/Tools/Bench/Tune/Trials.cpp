//===- Trials.cpp - measures a row with other configs -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trials.h"

#include "../../../../runtime/src/support/Threads.h"
#include "../TryStatus.h"

#include <atomic>

using namespace moec;
using namespace moec::bench;
using moert::Result;

static constexpr double kMeasureSeconds = 0.06;

Trials::Trials(Session &session, LayerOnDevice &layer, RowRun &run,
               const Row &row)
    : session(session), layer(layer), run(run), small(session) {
  // A layer for only these tokens has few kernels to compile.
  small.maxTokens = row.tokens;
  small.jit.threads = 1;
  small.jit.useCache = false;
  small.jit.compile.disable.push_back("join-products");
}

size_t Trials::getNumThreads() { return moert::countProcessors(); }

std::vector<std::optional<Result<ReadyLayer>>>
Trials::compile(const std::vector<KernelConfigs> &all,
                llvm::function_ref<bool()> isOver) {
  std::vector<std::optional<Result<ReadyLayer>>> compiled(all.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      if (isOver())
        return;
      std::vector<std::string> configs;
      for (const auto &[kernel, text] : all[i])
        configs.push_back((llvm::Twine(kernel) + ":" + text).str());
      compiled[i].emplace(compileLayer(small, layer.getLayer(),
                                       /*withRouter=*/false, configs));
    }
  };
  moert::shareWork(std::min(getNumThreads(), all.size()), work);
  isRested = true;
  return compiled;
}

Result<double> Trials::measure(Result<ReadyLayer> ready) {
  if (!ready)
    return ready.status();
  MOEC_TRY(layer.load(session, std::move(*ready)));
  MOEC_TRY(run.runAll());
  MOEC_TRY(run.check().status());
  if (!session.hasClock)
    return 0.0;
  MOEC_TRY(run.capture());
  Observation observation;
  // After a pause the clock is temporarily higher, so the first measurement
  // would be too fast; it is discarded.
  if (isRested)
    MOEC_TRY_ASSIGN(observation, run.observe(kMeasureSeconds));
  isRested = false;
  MOEC_TRY_ASSIGN(observation, run.observe(kMeasureSeconds));
  return observation.seconds;
}
