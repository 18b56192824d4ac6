//===- CommunicatorTesting.h - what ranks of tests do -----------*- C++ -*-===//
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

/// Twelve collectives, whose parts are drawn from `seed`, which is the same on
/// all ranks; expects the right rows and sums.
Status runRandomly(const RankOfTest &rank, uint32_t seed);

/// Each rank sends each, itself too, two messages of sizes that say who, times
/// `scale`; the last rank gets nothing but its own. Expects what is sent.
Status sendToEach(const RankOfTest &rank, int64_t scale = 1);

/// A ring of messages of which one rank says something else than the others,
/// and what all of them have to answer.
struct WrongRing {
  std::function<void(int64_t rank, Transfer &transfer)> change;
  StatusCode code;
  std::vector<std::string> texts;
};
std::vector<WrongRing> wrongRings();
/// What a rank of three, to which `ring` is done, answers.
Status sendAround(const RankOfTest &rank, const WrongRing &ring);

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_COMMUNICATORTESTING_H
