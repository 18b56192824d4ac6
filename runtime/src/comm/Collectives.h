//===- Collectives.h - checks and texts of all communicators ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_COLLECTIVES_H
#define MOERT_SRC_COMM_COLLECTIVES_H

#include "moert/Communicator.h"

#include <vector>

namespace moert {

/// Success for a mesh of at least one rank whose size does not overflow.
Status checkMesh(const Mesh &mesh);

Status checkLimit(double seconds);

/// Success if each part has addresses, a count and a type valid for the kind,
/// and sizes in bytes do not overflow. The message begins with `where`.
Status checkCollective(const Mesh &mesh, const Collective &collective);

/// Success if each message has a rank of the mesh, an address and a size.
Status checkTransfer(const Mesh &mesh, const Transfer &transfer);

/// Bytes of one rank: its input of an all-gather or all-reduce, its output of a
/// reduce-scatter.
size_t partBytes(const CollectivePart &part);

/// "all_gather over dp".
std::string describe(const Collective &collective);

/// The difference between two ranks' calls, or empty: "rank 0 has 2 parts, rank
/// 1 has 3".
std::string describeDifference(int64_t rank, const Collective &call,
                               int64_t otherRank, const Collective &otherCall);

/// "rank 3", "ranks 1, 2 and 5".
std::string ranksText(const std::vector<int64_t> &ranks);

/// "0.5 s".
std::string secondsText(double seconds);

} // namespace moert

#endif // MOERT_SRC_COMM_COLLECTIVES_H
