//===- Request.h - a call in which ranks meet -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_REQUEST_H
#define MOERT_SRC_COMM_REQUEST_H

#include "moert/Communicator.h"

#include <vector>

namespace moert {

/// A collective, a transfer, or a text to compare.
struct Request {
  const Collective *collective = nullptr;
  const Transfer *transfer = nullptr;
  const std::string *subject = nullptr;
  const std::string *what = nullptr;

  std::string where() const;
};

/// Success if two ranks make the same call, else an error with the difference.
Status checkSame(int64_t rank, const Request &request, int64_t otherRank,
                 const Request &other);

/// The error of waiting ranks when others did not arrive within the limit.
Status describeMissing(const Request &request,
                       const std::vector<int64_t> &missing, double limitSeconds,
                       const std::string &remark);

/// The error of a rank whose call other ranks will never join.
Status describeGone(const Request &request, int64_t rank,
                    const std::vector<int64_t> &gone);

/// The error of waiting ranks when a rank leaves.
Status describeLeaving(const Request &request, int64_t left,
                       const std::vector<int64_t> &waiting);

} // namespace moert

#endif // MOERT_SRC_COMM_REQUEST_H
