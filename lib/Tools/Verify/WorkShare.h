//===- WorkShare.h - the share of time that comparisons take ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_VERIFY_WORKSHARE_H
#define MOEC_LIB_TOOLS_VERIFY_WORKSHARE_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace moec {

/// Says when a comparison beside runs may begin. Runs of one token take up to
/// 4 % longer while one is at work (benchmarks/journal/engines.md), and
/// comparing every N-th run may cost 10/N of the time. So comparisons are at
/// work for at most 250/N of it, and rest between them if N is larger.
class WorkShare {
public:
  using Clock = std::chrono::steady_clock;

  explicit WorkShare(int64_t every) : every(every) {}

  bool mayBegin(Clock::time_point now) const {
    return now.time_since_epoch().count() >= restsUntil;
  }
  void begin(Clock::time_point now) { begun = now; }
  /// By the thread that has compared.
  void end(Clock::time_point now) {
    constexpr int64_t full = 250;
    int64_t worked = (now - begun).count();
    int64_t rest = worked / full * std::max<int64_t>(every - full, 0);
    restsUntil = now.time_since_epoch().count() + rest;
  }

private:
  const int64_t every;
  Clock::time_point begun;
  std::atomic<int64_t> restsUntil{INT64_MIN};
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_VERIFY_WORKSHARE_H
