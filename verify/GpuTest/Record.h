//===- Record.h - the record of gpu-test ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_RECORD_H
#define MOEC_VERIFY_GPUTEST_RECORD_H

#include "Cases/Case.h"
#include "Tools/OnDevice/DeviceRecord.h"

#include <optional>

namespace moec::gputest {

/// Outcomes by case, in the order of the list, and the build and device that
/// they are from.
class Record : public DeviceRecord {
public:
  using DeviceRecord::DeviceRecord;

  /// Takes the outcomes of passed cases from a file; returns the names of the
  /// failed ones.
  moert::Result<std::vector<std::string>> resume(const std::string &path);

  void addCase(const std::string &name);
  void set(const std::string &name, Outcome outcome);
  bool has(const std::string &name) const { return find(name).has_value(); }

  int64_t countPassed() const;
  int64_t countFailed() const;
  int64_t countLeft() const;

  /// Writes the record atomically. `seconds` is the suite's time without that
  /// of the resumed record.
  moert::Status write(const std::string &path, double seconds) const;
  /// Prints a line per group of cases, failures, and times against the floor.
  void print(double seconds) const;

private:
  std::optional<Outcome> find(const std::string &name) const;
  void printTimes() const;

  std::vector<std::string> names;
  std::map<std::string, Outcome> outcomes;
  /// Seconds of the resumed record.
  double secondsBefore = 0;
};

/// The part of a name before its first slash.
llvm::StringRef getGroup(llvm::StringRef name);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_RECORD_H
