//===- Ranges.h - value ranges of registers ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_RANGES_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_RANGES_H

#include "Live.h"

namespace moec::ptx::mutate {

/// The values that an integer register may have, as signed numbers of its
/// width, and their distance from the anchor, an unknown number such as the
/// number of rows. Predicates are 0 or 1.
struct Range {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool hasDistance = false;
  int64_t least = 0, most = 0;

  static Range of(int64_t low, int64_t high) {
    return Range{low, high, false, 0, 0};
  }
  bool isOne() const { return low == high; }
  bool operator<(const Range &other) const;
  bool operator==(const Range &other) const {
    return !(*this < other) && !(other < *this);
  }
};

/// Known ranges of registers at one instruction; other registers are unknown.
using Values = std::map<std::string, Range>;

/// Makes distances relative to the value of `anchor` from here on.
void setAnchor(Values &values, const std::string &anchor);

/// Whether the integer comparison `how` holds; none if both results are
/// possible.
std::optional<bool> compare(const std::string &how, bool isUnsigned,
                            const Range &a, const Range &b);

/// Range of an operand of type `type`, as the instruction reads it.
Range rangeOf(const RawOperand &operand, const std::string &type,
              const Values &values);

/// Range of the instruction's result; none if unknown, also for sums that may
/// overflow. A 64-bit parameter is an address or a size: from 0 to 2^48.
std::optional<Range> compute(const RawInstruction &instruction,
                             const Values &values);

/// Applies the instruction to the values of registers that `live` follows.
void applyTo(const RawInstruction &instruction, const Live &live,
             Values &values);

/// Walks all paths through a kernel that the constants in its text leave open.
class RangeWalk {
public:
  struct State {
    size_t at = 0;
    Values values;
    /// Tells paths apart, such as the kernel's and the mutant's; numbered by
    /// the caller.
    unsigned world = 0;
  };
  /// Called before an instruction. May change the state, add others that
  /// continue from there, and end this path by returning false.
  using Meet = std::function<bool(State &state, std::vector<State> &others)>;
  /// Called after the instruction if it has several successors.
  using Choose = std::function<void(const State &, std::vector<size_t> &next)>;

  /// Follows the sources of `guards`, and what `reader` reads. Gives up after
  /// `maxSteps`, in a kernel of some thousand instructions.
  RangeWalk(const Flow &flow, const std::set<std::string> &guards,
            size_t reader, size_t maxSteps)
      : flow(flow), live(flow, guards, reader), maxSteps(maxSteps) {}

  /// False if there are too many paths. Each restart calls `begin`, and results
  /// from before it are void.
  bool walk(const std::function<void()> &begin, const Meet &meet,
            const Choose &choose);

private:
  bool explore(const Meet &meet, const Choose &choose, bool &hasDropped);
  bool isManifold(const State &state);
  /// All successors that the guard allows.
  std::vector<size_t> successors(const State &state) const;

  const Flow &flow;
  Live live;
  const size_t maxSteps;
  /// Per instruction and register, the ranges that it had there.
  std::vector<std::map<std::string, std::set<Range>>> seen;
};

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_RANGES_H
