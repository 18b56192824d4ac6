//===- Record.h - what a device answered, in short ---------------*- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTX_CONFORM_RECORD_H
#define MOEC_PTX_CONFORM_RECORD_H

#include "moec/Ptx/Conform/Run.h"

#include <map>

namespace moec::conform {

/// Every form is run on the inputs of these.
inline constexpr uint64_t kSeeds[] = {1, 2, 3};
inline constexpr size_t kNumSeeds = sizeof(kSeeds) / sizeof(kSeeds[0]);

/// The answers to one form. The first seed's can be looked at, and a difference
/// found to a sixteenth of the elements; the others' are told apart by a hash.
struct Answer {
  static constexpr size_t kSampleBytes = 96;
  static constexpr size_t kBlocks = 16;

  /// The first bytes of each output, of the first seed.
  Bytes sample;
  /// Hashes of the sixteenths of the outputs, of the first seed.
  std::vector<uint32_t> blocks;
  /// Hashes of the whole, of each seed.
  std::vector<uint64_t> hashes;
  /// Rule::Bound: the largest error of any seed.
  double error = 0;
};

/// Adds the outcome of one seed, which come in order, to `answer`. Fails where
/// the outcome is wrong whatever was recorded.
moert::Status addOutcome(Answer &answer, const Form &form,
                         const Outcome &outcome);

/// A file of answers: "# key: value" lines, then a line per form.
struct Record {
  /// "device", "driver", "date", "commit".
  std::map<std::string, std::string> about;
  std::map<std::string, Answer> answers;

  std::string print() const;
  static moert::Result<Record> parse(const std::string &text);
};

/// Empty where `found` keeps to the rule of `form`; else what differs.
std::string difference(const Form &form, const Answer &recorded,
                       const Answer &found);

/// The page that shows a record: forms, elements, bounds, measured errors.
std::string printTables(const Record &record);

} // namespace moec::conform

#endif // MOEC_PTX_CONFORM_RECORD_H
