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

/// The ranks of a mesh as threads of one process, on any device. Data goes
/// through host memory and each call waits for its stream: a reference for
/// tests, not fast.
///
/// All ranks of the mesh meet in every call, whatever its axis, and each copies
/// what it receives. Sums are in f32, in the order of ranks, and rounded once,
/// to nearest even. `send` and `receive` of a rank may overlap.
///
/// The first failure breaks the group for all ranks: calls that differ (kind,
/// axis, step of the plan, parts), a rank that does not arrive within the
/// limit, a rank whose communicator was destroyed, or abort().
class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
public:
  /// `limitSeconds` is the time that a rank waits for the others in one call.
  static Result<std::shared_ptr<LocalGroup>> create(const Mesh &mesh,
                                                    double limitSeconds);
  virtual ~LocalGroup();

  /// Makes the communicator of a rank, once per rank. The communicator keeps
  /// the group alive, and must be destroyed before `device`.
  virtual Result<std::unique_ptr<Communicator>> join(int64_t rank,
                                                     Device &device) = 0;
};

} // namespace moert

#endif // MOERT_LOCALGROUP_H
