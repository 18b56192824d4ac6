//===- Record.h - recorded results of a device ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_RECORD_H
#define MOEC_PTXCONFORM_RECORD_H

#include "Run.h"

#include <map>

namespace moec::conform {

/// Seeds of the inputs on which every form runs.
inline constexpr uint64_t kSeeds[] = {1, 2, 3};
inline constexpr size_t kNumSeeds = sizeof(kSeeds) / sizeof(kSeeds[0]);

/// The recorded results of one form. The first seed's have a readable sample,
/// and hashes that locate a difference to a sixteenth of the elements; the
/// other seeds have only one hash each.
struct Answer {
  static constexpr size_t kSampleBytes = 96;
  static constexpr size_t kBlocks = 16;

  /// First bytes of each output, for the first seed.
  Bytes sample;
  /// Hash of each sixteenth of the outputs, for the first seed.
  std::vector<uint32_t> blocks;
  /// Hash of all outputs, for each seed.
  std::vector<uint64_t> hashes;
  /// Rule::Bound: the largest error of any seed.
  double error = 0;
};

/// Adds the outcome of one seed to `answer`; seeds come in order. Fails if the
/// outcome is wrong regardless of any record.
moert::Status addOutcome(Answer &answer, const Form &form,
                         const Outcome &outcome);

/// A file of answers: "# key: value" lines, then a line per form.
struct Record {
  /// Values of "device", "driver", "date", "commit".
  std::map<std::string, std::string> about;
  std::map<std::string, Answer> answers;

  std::string print() const;
  static moert::Result<Record> parse(const std::string &text);
};

/// Describes where `found` violates the rule of `form`; empty if it does not.
std::string difference(const Form &form, const Answer &recorded,
                       const Answer &found);

/// A page that shows a record: forms, elements, bounds, measured errors.
std::string printTables(const Record &record);

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_RECORD_H
