//===- Ranges.h - between which numbers a register is -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_FLOW_RANGES_H
#define MOEC_LIB_PTX_MUTATE_FLOW_RANGES_H

#include "Live.h"

namespace moec::ptx::mutate {

/// All values that an integer register may have, as signed numbers of its
/// width, and their distance from a number that is not known, the anchor: how
/// many rows there are. Predicates are 0 or 1.
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

/// What is known of registers at one place; of others nothing is.
using Values = std::map<std::string, Range>;

/// From here on distances are those from the value of `anchor`.
void setAnchor(Values &values, const std::string &anchor);

/// Whether the comparison `how` of integers holds; none if it may and may not.
std::optional<bool> compare(const std::string &how, bool isUnsigned,
                            const Range &a, const Range &b);

/// The operand as the instruction reads it, of the type `type`.
Range rangeOf(const RawOperand &operand, const std::string &type,
              const Values &values);

/// The result of the instruction; none if it is not known. Sums that may not
/// fit their type are not, and 64 bits that are a parameter are an address or a
/// size: from 0 to 2^48.
std::optional<Range> compute(const RawInstruction &instruction,
                             const Values &values);

/// What the instruction makes of the values of registers that `live` follows.
void applyTo(const RawInstruction &instruction, const Live &live,
             Values &values);

/// Goes all ways through a kernel that the numbers in its text leave open.
class RangeWalk {
public:
  struct State {
    size_t at = 0;
    Values values;
    /// Whose way it is, for the one who asks.
    unsigned world = 0;
  };
  /// Called before an instruction. It may change the state, add others that
  /// go on from there, and end this way by returning false.
  using Meet = std::function<bool(State &state, std::vector<State> &others)>;
  /// Called after it, before the next: where there are several.
  using Choose = std::function<void(const State &, std::vector<size_t> &next)>;

  /// Follows what `guards` are made of, and what `reader` reads. Gives up after
  /// `maxSteps`, in a kernel of some thousand instructions.
  RangeWalk(const Flow &flow, const std::set<std::string> &guards,
            size_t reader, size_t maxSteps)
      : flow(flow), live(flow, guards, reader), maxSteps(maxSteps) {}

  /// False if there are too many ways. What `begin` found out until then, or
  /// what was met before a walk that had to begin again, means nothing.
  bool walk(const std::function<void()> &begin, const Meet &meet,
            const Choose &choose);

private:
  bool explore(const Meet &meet, const Choose &choose, bool &hasDropped);
  bool isManifold(const State &state);
  /// All successors that the guard leaves.
  std::vector<size_t> successors(const State &state) const;

  const Flow &flow;
  Live live;
  const size_t maxSteps;
  /// Per instruction: per register, what it was there.
  std::vector<std::map<std::string, std::set<Range>>> seen;
};

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_FLOW_RANGES_H
