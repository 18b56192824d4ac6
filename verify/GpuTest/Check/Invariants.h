//===- Invariants.h - bitwise invariants of a layer -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_CHECK_INVARIANTS_H
#define MOEC_VERIFY_GPUTEST_CHECK_INVARIANTS_H

#include "../Run/LayerRun.h"
#include "CheckLayer.h"
#include "LayerCase.h"

namespace moec::gputest {

/// Repeats a layer that has run once, with the same and with changed inputs.
/// Outputs are compared bitwise over all rows.
class Invariants {
public:
  /// `expected` and `records` are the output and the recorded outputs of the
  /// first run.
  Invariants(const SuiteContext &context, LayerRun &run, Inputs &inputs,
             Bytes expected, Bytes records, Outcome &outcome);

  /// Checks that runs, and replays if there are graphs, are bitwise equal.
  void checkRepeats(int64_t count);
  /// Checks that a captured graph works for any number of valid tokens.
  void checkValidCounts();
  /// Checks that changing one row changes no other row.
  void checkIsolation();
  /// Checks that permuting tokens permutes rows.
  void checkPermutation();
  /// Checks that a run with a workspace slot per buffer is bitwise equal. Keeps
  /// the buffers that a check inspects; the experts' results only if asked,
  /// because they are large.
  void inspect(LayerResult &result, bool keepExpertsOut);

private:
  bool runOnce();
  bool read(Bytes &bytes);
  /// Compares the output with `wanted`, row i with row source(i); skips rows
  /// with a negative source.
  void compare(const std::string &what, const Bytes &wanted,
               llvm::function_ref<int64_t(int64_t)> source);
  /// Compares the recorded outputs with those of the first run.
  void compareRecords(const std::string &what);
  bool
  update(const std::function<void(HostTensor &, const HostTensor &)> &change);
  bool restore();

  const SuiteContext &context;
  LayerRun &run;
  Inputs &inputs;
  Bytes expected, records;
  Outcome &outcome;
  int64_t tokens, numValid;
  size_t rowBytes;
};

/// Replaces all NaN by the same one: their bits depend on the operation that
/// made them.
void unifyNaN(Bytes &bytes, DType dtype);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_CHECK_INVARIANTS_H
