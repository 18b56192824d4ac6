//===- Agreement.h - values common to a CTA ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_AGREEMENT_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_AGREEMENT_H

#include "Flow.h"

namespace moec::ptx::mutate {

/// Finds registers that have the same value in all threads of a CTA whenever
/// the threads reach an instruction for the same time: computed from such
/// values, and written where no threads have diverged.
class Agreement {
public:
  explicit Agreement(const Flow &flow);

  /// Whether all threads have the same value there; true for numbers.
  bool isCommon(const RawOperand &operand) const;
  bool isCommon(const std::string &name) const { return !varying.count(name); }

private:
  void findPostDominators();
  /// Instructions that only some threads may execute if the threads of a CTA
  /// diverge at `branch`: up to where all paths from it reconverge.
  std::set<size_t> regionOf(size_t branch) const;
  bool makesCommon(const RawInstruction &instruction) const;

  const Flow &flow;
  /// Per instruction, the instructions on every path from it to the end.
  std::vector<std::vector<bool>> behind;
  /// Registers that are written, and those of them that are not common.
  std::set<std::string> written, varying;
};

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_AGREEMENT_H
