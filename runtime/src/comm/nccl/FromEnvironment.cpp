//===- FromEnvironment.cpp - ranks of a launcher ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Bootstrap.h"

namespace moert {

Result<std::unique_ptr<NcclCommunicator>>
NcclCommunicator::fromEnvironment(NcclOptions options) {
  Result<RankEnvironment> environment = readRankEnvironment();
  if (!environment)
    return environment.status();
  int64_t numRanks = options.mesh.numRanks();
  if (environment->numRanks != numRanks)
    return invalidArgument(
        "the launcher has started " + std::to_string(environment->numRanks) +
        " ranks, but the mesh has " + std::to_string(numRanks) + " (" +
        options.mesh.str() + "); start that number");
  options.rank = environment->rank;
  options.ordinal = static_cast<int>(environment->localRank);
  Result<Rendezvous> rendezvous = Rendezvous::fromEnvironment(*environment);
  if (!rendezvous)
    return rendezvous.status();
  Result<NcclUniqueId> id =
      rendezvous->exchange(*environment, options.limitSeconds, [&] {
        return makeNcclUniqueId(options.ncclLibrary);
      });
  if (!id)
    return id.status();
  Result<std::unique_ptr<NcclCommunicator>> made = create(options, *id);
  // All ranks have read the file by now, or this start has failed.
  if (rendezvous->usesFile && options.rank == 0)
    removeExchanged(rendezvous->file);
  return made;
}

} // namespace moert
