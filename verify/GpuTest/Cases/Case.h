//===- Case.h - cases of gpu-test -------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_CASES_CASE_H
#define MOEC_VERIFY_GPUTEST_CASES_CASE_H

#include "moert/Status.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moec::gputest {

struct Outcome {
  /// Empty on success.
  std::vector<std::string> failures;
  /// Errors against the reference, bounds, times.
  std::map<std::string, double> figures;
  /// A remark for the reader, e.g. how many rows were compared.
  std::string note;
  double seconds = 0;

  bool hasPassed() const { return failures.empty(); }
  void fail(std::string message) { failures.push_back(std::move(message)); }
  /// Adds the failure of a status; returns true for success.
  bool expect(const moert::Status &status) {
    if (!status)
      fail(status.message());
    return status.isOk();
  }
};

/// Options for a layer's kernels on sm_90a; ignored on other targets.
struct KernelOptions {
  /// Copies rows into order wherever possible, even if it does not pay.
  bool permuteRows = false;
  /// Forced configs, as in `CompileOptions`.
  std::vector<std::string> configs;
};

/// A layer, its inputs, and the checks besides that of its output: one entry of
/// cases.json.
struct LayerCase {
  std::string name;
  /// A spec or a model's configuration, as JSON, and its source.
  std::string description, origin;
  KernelOptions kernels;
  /// The most tokens of a call; 0 takes those of the description.
  int64_t maxTokens = 0;
  int64_t tokens = 0;
  uint64_t seed = 1;
  /// Standard deviation of hidden states and weights; 0 chooses it such that
  /// all intermediate values are of the order of one.
  double deviation = 0;
  /// A rule of HardRules.h, and the share of elements that it changes; may be
  /// empty.
  std::string hard;
  double share = 0;
  /// If positive, a bound on the difference of any two elements.
  double absolute = 0;
  /// If positive, bounds on `reference::RelativeErrors`.
  double largestRelative = 0, rmsRelative = 0;
  /// If positive, such a bound for the output against sums of the computed
  /// rows, so that earlier rounding does not count.
  double sums = 0;
  /// Elements of padding after each row of the weights.
  int64_t pitch = 0;
  /// Further runs that must be bitwise equal.
  int64_t repeats = 0;
  /// Whether to run with a changed row, and with permuted rows.
  bool isolation = false, permutation = false;
  int64_t timed = 0;
};

struct Case {
  std::string name;
  std::function<Outcome()> run;
  /// Runs alone, because it measures host time.
  bool isAlone = false;
};

/// The cases in a folder's cases.json. Descriptions of models are read from
/// `models` in the same folder.
moert::Result<std::vector<LayerCase>> loadCases(const std::string &folder,
                                                std::string &commit);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_CASES_CASE_H
