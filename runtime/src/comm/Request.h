//===- Request.h - what a rank has come for ---------------------*- C++ -*-===//
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

/// A collective, or a text to compare.
struct Request {
  const Collective *collective = nullptr;
  const Transfer *transfer = nullptr;
  const std::string *subject = nullptr;
  const std::string *what = nullptr;

  std::string where() const;
};

/// The error of two ranks that have come for something else; success where it
/// is the same.
Status checkSame(int64_t rank, const Request &request, int64_t otherRank,
                 const Request &other);

/// The error of those who wait where others did not come within the limit.
Status describeMissing(const Request &request,
                       const std::vector<int64_t> &missing, double limitSeconds,
                       const std::string &remark);

/// The error of a rank that comes for a call that others will not come to.
Status describeGone(const Request &request, int64_t rank,
                    const std::vector<int64_t> &gone);

/// The error of those who wait when a rank leaves.
Status describeLeaving(const Request &request, int64_t left,
                       const std::vector<int64_t> &waiting);

} // namespace moert

#endif // MOERT_SRC_COMM_REQUEST_H
