//===- Suite.h - runs cases -------------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_SUITE_H
#define MOEC_VERIFY_GPUTEST_SUITE_H

#include "Options.h"
#include "Record.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace moec::gputest {

/// Runs cases in order on a few threads, and keeps the record.
class Suite {
public:
  Suite(const Options &options, Record &record)
      : options(options), record(record) {}

  /// Returns the exit code: 0, 1 with failures, 2 if cases are left.
  int run(const std::vector<Case> &cases);

private:
  void work(const std::vector<const Case *> &cases);
  void runOne(const Case &mine);
  void report(const Case &done, Outcome outcome);
  bool isOver() const;
  void watch();
  void save();
  double getSeconds() const;

  const Options &options;
  Record &record;
  double begin = 0;
  std::mutex mutex;
  size_t next = 0, numDone = 0, numCases = 0;
  double lastSaved = 0;
  /// Whether the device fails every call.
  bool isLost = false;
  bool isDone = false;
  std::condition_variable doneChanged;
  std::map<std::string, double> running;
};

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_SUITE_H
