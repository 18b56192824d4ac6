//===- TopKSelect.h - the best keys of a row --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_TOPKSELECT_H
#define MOEC_LIB_SCHEDULES_ROUTING_TOPKSELECT_H

#include "KernelBuilder/KernelEmitter.h"

#include <limits>

namespace moec {

/// A row of experts as vectors. Groups whose size is not a multiple of the
/// lanes are padded, so that an expert's position in scratch memory is not its
/// id.
class RowLayout {
public:
  RowLayout(KernelEmitter &emitter, int64_t numGroups, int64_t groupSize,
            int64_t lanes);

  /// Runs over all experts in ascending order, in steps of `lanes`, and carries
  /// a state (Values.h): `body(expert, position, mask, state)` returns the next
  /// one. The mask is null if all lanes are experts. Returns the last state.
  template <typename State, typename Body>
  State forRow(State state, Body body) {
    Index zero = emitter.index(0);
    if (stride == groupSize || numGroups == 1)
      return forExperts(numGroups * groupSize, zero, zero, state, body);
    return emitter.loop(
        zero, emitter.index(numGroups), 1, state,
        [&](Index group, State next) { return forGroup(group, next, body); });
  }
  /// Runs over the experts of one group.
  template <typename State, typename Body>
  State forGroup(Index group, State state, Body body) {
    Index firstExpert = group * groupSize, firstPosition = group * stride;
    return forExperts(groupSize, firstExpert, firstPosition, state, body);
  }

  /// Positions of the whole row, including padding.
  int64_t size() const { return numGroups * stride; }
  /// The expert, an index, at a position.
  Index expertAt(Index position);
  /// The position of an expert.
  Index positionOf(Index expert);

  KernelEmitter &emitter;
  const int64_t numGroups;
  const int64_t groupSize;
  const int64_t lanes;
  /// Positions per group.
  const int64_t stride;

private:
  /// The experts `0 .. count - 1` from `firstExpert` on.
  template <typename State, typename Body>
  State forExperts(int64_t count, Index firstExpert, Index firstPosition,
                   State state, Body body) {
    int64_t tail = count % lanes;
    auto step = [&](Index column, Flag mask, State here) {
      Index expert = firstExpert + column, position = firstPosition + column;
      return body(expert, position, mask, here);
    };
    Index end = emitter.index(count - tail);
    if (count != tail)
      state = emitter.loop(
          emitter.index(0), end, lanes, state,
          [&](Index column, State here) { return step(column, Flag(), here); });
    if (tail != 0)
      state = step(end, emitter.mask(emitter.index(tail), lanes), state);
    return state;
  }
};

/// Selection keys of a row in scratch memory, as i32 with the signed order of
/// the f32 keys: -0 equals 0, and NaN does not occur. Entries that cannot be
/// selected, including padding, are less than every key.
class KeyTable {
public:
  KeyTable(RowLayout &layout);

  /// The key of entries that cannot be selected; no float maps to it.
  static constexpr int64_t kOutKey = std::numeric_limits<int32_t>::min();

  /// Keys of floats, and the floats of keys; scalars or vectors.
  static I32 fromFloat(F32 value);
  static F32 toFloat(I32 key);

  // Selection, from vectors of keys that were loaded or computed.

  /// The largest key of all lanes, and the smallest position that has it.
  struct Best {
    I32 key, place;
  };
  static Best reduceBest(KernelEmitter &emitter, int64_t lanes, I32 keys,
                         I32 places);
  /// The two largest keys of each lane.
  struct TwoKeys {
    I32 first, second;
    auto fields() { return std::tie(first, second); }
  };
  /// The two largest of `here` and `two`.
  static TwoKeys nextTwo(I32 here, TwoKeys two);
  /// The key of a group from the two largest keys of its lanes.
  static I32 reduceGroup(KernelEmitter &emitter, int64_t lanes,
                         moe::GroupScore score, TwoKeys two);
  /// Whether the largest key of all lanes is above -inf.
  static Flag isAboveMinusInfinity(KernelEmitter &emitter, I32 largest);

  /// Stores keys of a full vector at `position`; masked-off lanes are padding.
  void store(I32 keys, Index position, Flag mask);
  I32 load(Index position);
  /// Position of the largest key in `begin .. end - 1`, the first of equals.
  Index argmax(Index begin, Index end);
  /// Excludes an entry from further selection.
  void remove(Index position);

  /// Removes all experts except those of the best groups.
  void keepBestGroups(moe::GroupScore score, int64_t count);

  /// A carried value for the largest key of a row.
  I32 initialLargest();
  I32 nextLargest(I32 largest, I32 keys, Flag mask);

private:
  I32 splatKey(int64_t key);
  I32 maskedKeys(I32 keys, Flag mask);
  Index argmaxIn(mlir::Value table, Index begin, Index end);
  I32 groupKey(Index group, moe::GroupScore score);

  RowLayout &layout;
  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value keys;
  /// Keys of groups; null for a single group.
  mlir::Value groupKeys;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_TOPKSELECT_H
