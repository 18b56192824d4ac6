//===- LiveCheck.h - compares runs with the reference -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compares sampled rows of every N-th run of a layer with the float64
// reference, which reads the weights that are bound, not what was prepared from
// them. On a GPU the host waits for the run, copies the rows, and a thread
// compares them beside later runs; a run that is due before it is done and has
// rested is left out, because comparing it would cost more than it may.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_VERIFY_LIVECHECK_H
#define MOEC_LIB_TOOLS_VERIFY_LIVECHECK_H

#include "../../../runtime/src/CApi.h"
#include "../../../runtime/src/support/Threads.h"
#include "SampledRun.h"
#include "WorkShare.h"

#include <atomic>

namespace moec {

struct LiveCheckOptions {
  /// Compares runs `every`, 2 * `every`, ...
  int64_t every = 1;
  /// Compared rows of such a run.
  int64_t rows = 1;
  /// Decides which rows are compared.
  uint64_t seed = 0;
  /// The folder for what reproduces wrong rows.
  std::string folder;
  /// Whether runs that are captured are left out, instead of refused.
  bool skipsCaptured = false;
};

class LiveCheck : public moert::RunWatch {
public:
  /// Fails, by name, for layers that cannot be compared.
  static moert::Result<std::unique_ptr<LiveCheck>>
  create(moert_layer &layer, LiveCheckOptions options);
  ~LiveCheck() override { settle(); }

  moert::Status beforeRun(moert::Stream *stream) override;
  void afterRun(int64_t tokens, moert::Stream *stream) override;
  void settle() override;
  moert::Status report() override;
  moert::Status checkKept() const override;
  std::unique_ptr<moert::RunWatch> clone(moert_layer &clone) const override;

private:
  LiveCheck(moert_layer &layer, LayerSpec spec, LiveCheckOptions options)
      : layer(layer), spec(std::move(spec)), options(std::move(options)),
        share(this->options.every), staging(layer.device) {}

  bool isOfHost() const { return layer.device.architecture().empty(); }
  std::vector<int64_t> drawRows(int64_t tokens) const;
  moert::Status sample(int64_t tokens, moert::Stream *stream);
  void compare(const SampledRun &run, const BoundWeights &weights, int threads);
  void tell(const moert::Status &status);
  void tellUncompared(int64_t run, const moert::Status &status);

  moert_layer &layer;
  const LayerSpec spec;
  const LiveCheckOptions options;
  int64_t numRuns = 0, numFindings = 0;
  bool isCaptured = false;
  WorkShare share;
  /// For one run at a time.
  RowStaging staging;
  /// The comparison in flight, if any; it alone uses `found` until it is
  /// joined.
  std::unique_ptr<moert::Thread> thread;
  std::atomic<bool> isComparing{false};
  moert::Status found = moert::Status::ok();
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_VERIFY_LIVECHECK_H
