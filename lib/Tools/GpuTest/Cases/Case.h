//===- Case.h - what the suite is made of -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_GPUTEST_CASES_CASE_H
#define MOEC_LIB_TOOLS_GPUTEST_CASES_CASE_H

#include "moert/Status.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moec::gputest {

/// What a case has shown.
struct Outcome {
  /// Empty if all is well.
  std::vector<std::string> failures;
  /// Errors against the reference, bounds, times.
  std::map<std::string, double> figures;
  /// For the reader, e.g. how many rows were compared.
  std::string note;
  double seconds = 0;

  bool hasPassed() const { return failures.empty(); }
  void fail(std::string message) { failures.push_back(std::move(message)); }
  /// Adds the failure of a status; true for success.
  bool expect(const moert::Status &status) {
    if (!status)
      fail(status.message());
    return status.isOk();
  }
};

/// How the kernels of a layer are made, on sm_90a; on other targets as ever.
struct KernelOptions {
  /// Rows are copied into order wherever they can be, not where that pays.
  bool permuteRows = false;
  /// Configs to take, as `CompileOptions` has them.
  std::vector<std::string> configs;
};

/// A layer, its inputs, and what is to be shown of it beside its output: one
/// entry of cases.json.
struct LayerCase {
  std::string name;
  /// A spec or a model's configuration, as JSON, and where it is from.
  std::string description, origin;
  KernelOptions kernels;
  /// Largest number of tokens of a call; 0: what the description says.
  int64_t maxTokens = 0;
  int64_t tokens = 0;
  uint64_t seed = 1;
  /// Standard deviation of hidden states and weights; 0: such that all
  /// intermediate values are of the order of one.
  double deviation = 0;
  /// A rule of HardInputs.h, and the share of what it touches; may be empty.
  std::string hard;
  double share = 0;
  /// Where positive, a bound on the difference of any two elements.
  double absolute = 0;
  /// Where positive, bounds on `reference::RelativeErrors`.
  double largestRelative = 0, rmsRelative = 0;
  /// Where positive, such a bound for the output against the sums of the very
  /// rows that it was made of, so that no rounding before counts.
  double sums = 0;
  /// Elements of padding after each row of the weights.
  int64_t pitch = 0;
  /// Further runs that have to give the same bits.
  int64_t repeats = 0;
  /// Runs with a changed row, and with permuted rows.
  bool isolation = false, permutation = false;
  /// Timed runs.
  int64_t timed = 0;
};

/// A case with a name, and how it is run.
struct Case {
  std::string name;
  std::function<Outcome()> run;
  /// Nothing runs beside it: it measures the host.
  bool isAlone = false;
};

/// The cases of a file. Descriptions of models are read from the folder
/// `models` beside it.
moert::Result<std::vector<LayerCase>> loadCases(const std::string &folder,
                                                std::string &commit);

} // namespace moec::gputest

#endif // MOEC_LIB_TOOLS_GPUTEST_CASES_CASE_H
