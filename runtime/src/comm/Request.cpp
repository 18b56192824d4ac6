//===- Request.cpp - a call in which ranks meet -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Request.h"

#include "Collectives.h"

namespace moert {

std::string Request::where() const {
  return collective ? collective->where + " (" + describe(*collective) + ")"
         : transfer ? transfer->where
                    : *subject;
}

static std::string describeDifference(int64_t rank, const Request &request,
                                      int64_t otherRank, const Request &other) {
  if (request.collective && other.collective)
    return describeDifference(rank, *request.collective, otherRank,
                              *other.collective);
  if (request.transfer && other.transfer &&
      request.transfer->where == other.transfer->where)
    return "";
  if (request.subject && other.subject && *request.subject == *other.subject &&
      *request.what == *other.what)
    return "";
  auto text = [](const Request &request) {
    return request.subject ? *request.subject + " '" + *request.what + "'"
                           : request.where();
  };
  return "rank " + std::to_string(rank) + " has " + text(request) + ", rank " +
         std::to_string(otherRank) + " has " + text(other);
}

Status checkSame(int64_t rank, const Request &request, int64_t otherRank,
                 const Request &other) {
  // Ordered by rank, so that all ranks report the same text.
  std::string difference =
      rank < otherRank ? describeDifference(rank, request, otherRank, other)
                       : describeDifference(otherRank, other, rank, request);
  if (difference.empty())
    return Status::ok();
  return invalidArgument(
      request.where() + ": ranks differ: " + difference +
      "; give all ranks the same package and the same number of tokens");
}

Status describeMissing(const Request &request,
                       const std::vector<int64_t> &missing, double limitSeconds,
                       const std::string &remark) {
  return unavailable(
      request.where() + ": " + ranksText(missing) + " did not come within " +
      secondsText(limitSeconds) + remark +
      "; look for an earlier error on that rank, or give a longer limit");
}

Status describeGone(const Request &request, int64_t rank,
                    const std::vector<int64_t> &gone) {
  return unavailable(request.where() + ": " + ranksText(gone) +
                     " left before this call, for which rank " +
                     std::to_string(rank) +
                     " waits; all ranks must make the same calls");
}

Status describeLeaving(const Request &request, int64_t left,
                       const std::vector<int64_t> &waiting) {
  std::string rank = "rank " + std::to_string(left);
  return unavailable(request.where() + ": " + rank +
                     " has left and destroyed its communicator, while " +
                     ranksText(waiting) +
                     (waiting.size() == 1 ? " waits" : " wait") +
                     "; look for an earlier error of " + rank);
}

} // namespace moert
