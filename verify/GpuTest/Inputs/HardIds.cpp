//===- HardIds.cpp - hard inputs: expert ids --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HardRules.h"
#include "llvm/ADT/STLExtras.h"

using namespace moec;
using namespace moec::gputest;
using moert::Status;

/// Writes the values to a share of the slots and to all slots of one token.
static Status replaceIds(Hard &hard, llvm::ArrayRef<int64_t> values,
                         double share, bool spoilsWeights) {
  if (Status status = needsIds(hard); !status)
    return status;
  constexpr double bad[] = {kNaN, kInfinity, -kInfinity};
  for (int64_t i = 0; i < hard.tokens * hard.topK; ++i) {
    if (i / hard.topK != hard.tokens / 2 && hard.draw.uniform() >= share)
      continue;
    int64_t which = hard.draw.below(static_cast<int64_t>(values.size()));
    hard.set("topk_ids", i, static_cast<double>(values[which]));
    if (spoilsWeights)
      hard.set("topk_weights", i, bad[hard.draw.below(3)]);
  }
  return Status::ok();
}

static std::vector<int64_t> getWildIds(const Hard &hard) {
  return {hard.routes,
          hard.routes + 5,
          std::numeric_limits<int32_t>::max(),
          -2,
          -7,
          std::numeric_limits<int32_t>::min()};
}

static double getShare(const Hard &hard) {
  return hard.share > 0 ? hard.share : 0.3;
}

Status moec::gputest::minusOneIds(Hard &hard) {
  return replaceIds(hard, {-1}, getShare(hard), /*spoilsWeights=*/false);
}

Status moec::gputest::outOfRangeIds(Hard &hard) {
  if (!hard.isHash())
    return replaceIds(hard, getWildIds(hard), getShare(hard),
                      /*spoilsWeights=*/false);
  std::vector<int64_t> wild = getWildIds(hard);
  const HostTensor &table = *hard.get("gate.hash_table");
  for (int64_t i = 0; i < table.getNumElements(); ++i)
    if (hard.draw.uniform() < 0.3)
      setElement(table, i, static_cast<double>(wild[hard.draw.below(6)]));
  const double values[] = {
      static_cast<double>(*hard.spec.routing.hashVocabSize), -1,
      static_cast<double>(std::numeric_limits<int32_t>::max()),
      static_cast<double>(std::numeric_limits<int32_t>::min())};
  for (int64_t t = 1; t < hard.tokens; t += 4)
    hard.set("input_ids", t, values[hard.draw.below(4)]);
  return Status::ok();
}

Status moec::gputest::nanWeights(Hard &hard) {
  std::vector<int64_t> ids = getWildIds(hard);
  ids.push_back(-1);
  return replaceIds(hard, ids, getShare(hard), /*spoilsWeights=*/true);
}

Status moec::gputest::zipf(Hard &hard) {
  if (Status status = needsIds(hard); !status)
    return status;
  std::vector<double> sums(hard.routes);
  double total = 0;
  for (int64_t e = 0; e < hard.routes; ++e)
    sums[e] = total += 1 / static_cast<double>(e + 1);
  for (int64_t t = 0; t < hard.tokens; ++t) {
    std::vector<int64_t> ids;
    while (static_cast<int64_t>(ids.size()) < hard.topK) {
      auto it = llvm::upper_bound(sums, hard.draw.uniform() * total);
      int64_t id = std::min<int64_t>(it - sums.begin(), hard.routes - 1);
      while (llvm::is_contained(ids, id))
        id = (id + 1) % hard.routes;
      hard.set("topk_ids", t * hard.topK + static_cast<int64_t>(ids.size()),
               static_cast<double>(id));
      ids.push_back(id);
    }
  }
  return Status::ok();
}

Status moec::gputest::balanced(Hard &hard) {
  hard.setIds(
      [&](int64_t t, int64_t j) { return (t * hard.topK + j) % hard.routes; });
  return needsIds(hard);
}

Status moec::gputest::edgeExperts(Hard &hard) {
  hard.setIds([&](int64_t t, int64_t j) {
    return (t + j) % 2 == 0 ? 0 : hard.routes - 1;
  });
  return needsIds(hard);
}

Status moec::gputest::duplicateIds(Hard &hard) {
  hard.setIds([&](int64_t t, int64_t j) {
    return t % 2 == 0 ? t % hard.routes : (t + j / 2) % hard.routes;
  });
  return needsIds(hard);
}

Status moec::gputest::staircase(Hard &hard) {
  int64_t expert = 0, left = 0;
  hard.setIds([&](int64_t, int64_t) {
    while (left == 0)
      left = expert = (expert + 1) % hard.routes;
    --left;
    return expert;
  });
  return needsIds(hard);
}
