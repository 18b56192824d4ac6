//===- Agreement.h - what all threads of a CTA know alike -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_FLOW_AGREEMENT_H
#define MOEC_LIB_PTX_MUTATE_FLOW_AGREEMENT_H

#include "Flow.h"

namespace moec::ptx::mutate {

/// Finds the registers that have the same value in all threads of a CTA,
/// whenever these come to the same place for the same time: made of equal
/// values, and written where all threads come alike.
class Agreement {
public:
  explicit Agreement(const Flow &flow);

  /// Whether all threads have the same value there; a number is one, too.
  bool isCommon(const RawOperand &operand) const;
  bool isCommon(const std::string &name) const { return !varying.count(name); }

private:
  void findPostDominators();
  /// What only some threads may execute, if those of a CTA go different ways
  /// at `branch`: up to where all these ways meet again.
  std::set<size_t> regionOf(size_t branch) const;
  bool makesCommon(const RawInstruction &instruction) const;

  const Flow &flow;
  /// Per instruction, those that every way from it to the end comes by.
  std::vector<std::vector<bool>> behind;
  /// Registers that are written, and those of them that are not common.
  std::set<std::string> written, varying;
};

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_FLOW_AGREEMENT_H
