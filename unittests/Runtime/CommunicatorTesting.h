//===- CommunicatorTesting.h - collectives for tests ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_COMMUNICATORTESTING_H
#define MOEC_UNITTESTS_RUNTIME_COMMUNICATORTESTING_H

#include "moert/Communicator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moert::test {

/// One rank of a test.
struct RankOfTest {
  Communicator &communicator;
  Stream &stream;
  int64_t index;

  Status run(CollectiveKind kind, MeshAxis axis,
             const std::vector<CollectivePart> &parts,
             const std::string &where) const;

  /// An all-reduce of one f32 over dp.
  Status step(const std::string &where) const;
};

void expectAllSay(const std::vector<Status> &statuses, StatusCode code,
                  const std::vector<std::string> &texts);

/// Every mesh of 2 to `most` ranks.
std::vector<Mesh> allMeshes(int64_t most = 16);

/// Runs twelve random collectives from `seed`, which is equal on all ranks, and
/// checks their rows and sums.
Status runRandomly(const RankOfTest &rank, uint32_t seed);

/// Each rank sends two messages to each rank, itself included, with sizes that
/// identify sender and receiver, times `scale`; the last rank receives only its
/// own. Checks the contents.
Status sendToEach(const RankOfTest &rank, int64_t scale = 1);

/// A ring of messages in which one rank deviates, and the error that all ranks
/// must return.
struct WrongRing {
  std::function<void(int64_t rank, Transfer &transfer)> change;
  StatusCode code;
  std::vector<std::string> texts;
};
std::vector<WrongRing> wrongRings();
/// The status of one of three ranks on which `ring` is applied.
Status sendAround(const RankOfTest &rank, const WrongRing &ring);

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_COMMUNICATORTESTING_H
