//===- Invariants.h - what holds exactly, whatever the layer ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_GPUTEST_CHECK_INVARIANTS_H
#define MOEC_LIB_TOOLS_GPUTEST_CHECK_INVARIANTS_H

#include "../Run/LayerRun.h"
#include "CheckLayer.h"
#include "LayerCase.h"

namespace moec::gputest {

/// Runs a layer that has run once again and again, with the same and with
/// changed inputs. Outputs are compared bit by bit, over all rows.
class Invariants {
public:
  /// `expected` and `records` are the output of the first run and those beside
  /// it.
  Invariants(const SuiteContext &context, LayerRun &run, Inputs &inputs,
             Bytes expected, Bytes records, Outcome &outcome);

  /// Runs give the same bits; those of graphs too, where there are graphs.
  void checkRepeats(int64_t count);
  /// A captured graph serves any number of valid tokens.
  void checkValidCounts();
  /// Changing one row changes no other.
  void checkIsolation();
  /// Permuting tokens permutes rows.
  void checkPermutation();
  /// A run with a workspace slot for each buffer gives the same bits; keeps the
  /// buffers that a check looks at; the experts' results only on demand, as
  /// they are large.
  void inspect(LayerResult &result, bool keepExpertsOut);

private:
  bool runOnce();
  bool read(Bytes &bytes);
  /// Compares the output with `wanted`, row i with row source(i); a negative
  /// source is not compared.
  void compare(const std::string &what, const Bytes &wanted,
               llvm::function_ref<int64_t(int64_t)> source);
  /// Compares what is recorded with that of the first run.
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

/// Gives all NaN the same bits: which they have depends on who made them.
void unifyNaN(Bytes &bytes, DType dtype);

} // namespace moec::gputest

#endif // MOEC_LIB_TOOLS_GPUTEST_CHECK_INVARIANTS_H
