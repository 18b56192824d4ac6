//===- LocalGroup.h - ranks that are threads of a process -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_LOCALGROUP_H
#define MOERT_LOCALGROUP_H

#include "moert/Communicator.h"

#include <memory>

namespace moert {

/// The ranks of a mesh as threads of one process, on any device: what they send
/// goes through host memory, and each call waits for its stream. It is an
/// oracle, not fast.
///
/// All ranks of the mesh meet in every call, whatever its axis, and each copies
/// what it receives. Sums are of f32, ranks added in their order, and rounded
/// once, to the nearest even value. `send` and `receive` of a rank may overlap.
///
/// The first failure breaks the group for all ranks: calls that differ (kind,
/// axis, place in the plan, parts), a rank that did not come within the limit,
/// one whose communicator is gone, or abort().
class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
public:
  /// `limitSeconds` is how long a rank waits for the others in one call.
  static Result<std::shared_ptr<LocalGroup>> create(const Mesh &mesh,
                                                    double limitSeconds);
  virtual ~LocalGroup();

  /// The communicator of a rank, made once per group. It keeps the group alive,
  /// and dies before `device`.
  virtual Result<std::unique_ptr<Communicator>> join(int64_t rank,
                                                     Device &device) = 0;
};

} // namespace moert

#endif // MOERT_LOCALGROUP_H
