//===- Constants.h - constant propagation -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_CONSTANTS_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_CONSTANTS_H

#include "Live.h"

namespace moec::ptx::mutate {

/// Constant propagation for registers that branches depend on, such as counters
/// of loops with a constant trip count.
class Constants {
public:
  explicit Constants(const Flow &flow);

  /// Registers with a known value; predicates are 0 or 1.
  using Values = std::map<std::string, int64_t>;

  /// Updates `values` by the instruction at `index`.
  void apply(size_t index, Values &values) const;
  /// The instructions that may come next.
  std::vector<size_t> successors(size_t index, const Values &values) const;
  /// Drops values that no later branch depends on.
  void keepLive(size_t index, Values &values) const {
    live.keep(index, values);
  }
  /// No longer follows the register.
  void drop(const std::string &name) { live.drop(name); }

private:
  std::optional<int64_t> value(const RawOperand &operand,
                               const Values &values) const;
  std::optional<int64_t> compute(const RawInstruction &instruction,
                                 const Values &values) const;

  const Flow &flow;
  Live live;
};

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_CONSTANTS_H
