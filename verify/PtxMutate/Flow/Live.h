//===- Live.h - liveness of sources of predicates ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_LIVE_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_LIVE_H

#include "Flow.h"

namespace moec::ptx::mutate {

/// Liveness of the registers that some predicates are computed from.
class Live {
public:
  /// Follows the predicates `guards` wherever they guard an instruction, and
  /// the sources from which the instruction at `reader` computes one of them.
  Live(const Flow &flow, const std::set<std::string> &guards,
       std::optional<size_t> reader = std::nullopt);

  bool follows(const std::string &name) const { return followed.count(name); }
  /// No longer follows the register.
  void drop(const std::string &name) { followed.erase(name); }

  /// Drops the values, by register, that are dead at `index`.
  template <typename Value>
  void keep(size_t index, std::map<std::string, Value> &values) const {
    for (auto it = values.begin(); it != values.end();) {
      auto number = numbers.find(it->first);
      bool isNeeded = number != numbers.end() && needed[index][number->second];
      it = isNeeded ? std::next(it) : values.erase(it);
    }
  }

private:
  void solve(const Flow &flow, const std::set<std::string> &guards,
             std::optional<size_t> reader);

  std::set<std::string> followed;
  std::map<std::string, size_t> numbers;
  /// Live registers before each instruction, by number.
  std::vector<std::vector<bool>> needed;
};

/// The predicates of all branches.
std::set<std::string> guardsOfBranches(const RawKernel &kernel);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_LIVE_H
