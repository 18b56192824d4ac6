//===- Collectives.cpp - checks and texts of all communicators --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Collectives.h"
#include "../support/Check.h"

#include <cstdio>
#include <limits>

namespace moert {

Status checkMesh(const Mesh &mesh) {
  // NCCL's rank ids are ints.
  constexpr int64_t mostRanks = std::numeric_limits<int>::max();
  if (mesh.dp < 1 || mesh.tp < 1 || mesh.dp > mostRanks / mesh.tp)
    return invalidArgument("a mesh of " + mesh.str() +
                           " is invalid; dp and tp must be at least 1, and "
                           "their product must fit an int");
  return Status::ok();
}

Status checkLimit(double seconds) {
  if (!(seconds > 0))
    return invalidArgument(
        "a limit of " + secondsText(seconds) +
        " is too short to wait for other ranks; give more than 0 s");
  return Status::ok();
}

static Status checkPart(const Mesh &mesh, const Collective &collective,
                        const CollectivePart &part) {
  bool sums = collective.kind != CollectiveKind::AllGather;
  bool isSummed = part.dtype == DType::F32 || part.dtype == DType::BF16 ||
                  part.dtype == DType::F16;
  if (sums && !isSummed)
    return invalidArgument(std::string(dtypeName(part.dtype)) +
                           " cannot be summed; f32, bf16 and f16 can");
  int64_t bits = dtypeBits(part.dtype);
  if (bits % 8 != 0)
    return invalidArgument(
        std::string(dtypeName(part.dtype)) +
        " is not a type of whole bytes; gather its bytes as u8");
  int64_t most = std::numeric_limits<int64_t>::max() / (bits / 8) /
                 mesh.size(collective.axis);
  if (part.count < 0 || part.count > most)
    return invalidArgument("a count of " + std::to_string(part.count) +
                           " elements is out of range");
  if (part.count > 0 && (!part.send || !part.receive))
    return invalidArgument(std::string(part.send ? "receive" : "send") +
                           " is null, with a count of " +
                           std::to_string(part.count));
  return Status::ok();
}

Status checkCollective(const Mesh &mesh, const Collective &collective) {
  for (size_t i = 0; i < collective.numParts; ++i)
    MOERT_CHECK(checkPart(mesh, collective, collective.parts[i])
                    .withContext(collective.where + ": " +
                                 describe(collective) + ": part " +
                                 std::to_string(i)));
  return Status::ok();
}

Status checkTransfer(const Mesh &mesh, const Transfer &transfer) {
  for (bool isSent : {true, false}) {
    size_t number = 0;
    for (const Message &message : isSent ? transfer.sends : transfer.receives) {
      std::string context =
          transfer.where + ": message " + std::to_string(number++) +
          (isSent ? " to rank " : " from rank ") + std::to_string(message.rank);
      if (message.rank < 0 || message.rank >= mesh.numRanks())
        return outOfRange(context + ": the ranks are 0 to " +
                          std::to_string(mesh.numRanks() - 1));
      if (message.bytes < 0 || (message.bytes > 0 && !message.data))
        return invalidArgument(context + ": " + std::to_string(message.bytes) +
                               " bytes, at an address that is " +
                               (message.data ? "not null" : "null"));
    }
  }
  return Status::ok();
}

size_t partBytes(const CollectivePart &part) {
  return static_cast<size_t>(part.count * (dtypeBits(part.dtype) / 8));
}

std::string describe(const Collective &collective) {
  return std::string(collectiveKindName(collective.kind)) + " over " +
         meshAxisName(collective.axis);
}

static std::string partText(const CollectivePart &part) {
  return std::to_string(part.count) + " of " + dtypeName(part.dtype);
}

std::string describeDifference(int64_t rank, const Collective &call,
                               int64_t otherRank, const Collective &otherCall) {
  auto both = [&](const std::string &mine, const std::string &other) {
    return "rank " + std::to_string(rank) + " has " + mine + ", rank " +
           std::to_string(otherRank) + " has " + other;
  };
  std::string mine = describe(call), other = describe(otherCall);
  if (call.where != otherCall.where || mine != other)
    return both(mine + " at " + call.where, other + " at " + otherCall.where);
  if (call.numParts != otherCall.numParts)
    return both(std::to_string(call.numParts) + " parts",
                std::to_string(otherCall.numParts)) +
           " in " + mine;
  for (size_t i = 0; i < call.numParts; ++i) {
    mine = partText(call.parts[i]);
    other = partText(otherCall.parts[i]);
    if (mine != other)
      return both(mine, other) + " in part " + std::to_string(i) + " of " +
             describe(call);
  }
  return "";
}

std::string ranksText(const std::vector<int64_t> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0)
      text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string secondsText(double seconds) {
  char text[32];
  snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

} // namespace moert
