//===- Selection.cpp - which experts a token takes --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Selection.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

using namespace moec;
using namespace moec::reference;

namespace {

/// Largest distance of a near tie.
constexpr int64_t kNearTie = 4 * kPartsOfUlp;
// Farther from every finite key than a near tie.
constexpr int64_t kInfinite = int64_t(1) << 43;
constexpr int64_t kNaN = -(int64_t(1) << 44);
/// Order of experts in excluded groups.
constexpr int64_t kExcluded = -(int64_t(1) << 50);
/// Most sets of groups that are tried.
constexpr int kMaxGroupSets = 4096;

using Orders = std::vector<int64_t>;

/// Whether candidate a may come before candidate b.
bool mayPrecede(const Orders &order, int64_t a, int64_t b) {
  int64_t distance = order[a] - order[b];
  return distance > 0 || (distance == 0 && a < b) ||
         (distance < 0 && -distance <= kNearTie);
}

/// Sorts candidates, best first.
std::vector<int64_t> rank(const Orders &order,
                          std::vector<int64_t> candidates) {
  llvm::sort(candidates, [&](int64_t a, int64_t b) {
    return order[a] != order[b] ? order[a] > order[b] : a < b;
  });
  return candidates;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> values(end - begin);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

int64_t getGroupSize(const LayerSpec &spec) {
  return spec.getNumRouted() / spec.routing.numGroups;
}

/// Whether the ids may be the best of the candidates in this order.
bool accepts(const Orders &order, const std::vector<int64_t> &candidates,
             llvm::ArrayRef<int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!llvm::is_contained(candidates, ids[i]))
      return false;
    // A duplicate id does not precede itself.
    for (size_t j = i + 1; j < ids.size(); ++j)
      if (!mayPrecede(order, ids[i], ids[j]))
        return false;
    for (int64_t other : candidates)
      if (!llvm::is_contained(ids, other) && !mayPrecede(order, ids[i], other))
        return false;
  }
  return true;
}

/// Calls `body` with each acceptable set of selected groups until it returns
/// true.
bool anyGroupSet(
    const Orders &order, int64_t kept,
    const std::function<bool(const std::vector<int64_t> &)> &body) {
  std::vector<int64_t> best =
      rank(order, range(0, static_cast<int64_t>(order.size())));
  std::vector<int64_t> inside(best.begin(), best.begin() + kept);
  std::vector<int64_t> outside(best.begin() + kept, best.end());
  auto isNearAny = [&](int64_t group, const std::vector<int64_t> &others) {
    return llvm::any_of(others, [&](int64_t other) {
      int64_t distance = std::abs(order[group] - order[other]);
      return distance >= 1 && distance <= kNearTie;
    });
  };
  std::vector<int64_t> members, open;
  for (int64_t group : inside)
    (isNearAny(group, outside) ? open : members).push_back(group);
  size_t numOpenInside = open.size();
  for (int64_t group : outside)
    if (isNearAny(group, inside))
      open.push_back(group);

  int looked = 0;
  auto isAllowed = [&] {
    return llvm::all_of(best, [&](int64_t other) {
      return llvm::is_contained(members, other) ||
             llvm::all_of(members, [&](int64_t member) {
               return mayPrecede(order, member, other);
             });
    });
  };
  std::function<bool(size_t, size_t)> extend = [&](size_t first, size_t left) {
    if (left == 0)
      return ++looked <= kMaxGroupSets && isAllowed() && body(members);
    for (size_t i = first; i + left <= open.size(); ++i) {
      members.push_back(open[i]);
      if (extend(i + 1, left - 1))
        return true;
      members.pop_back();
    }
    return false;
  };
  return extend(0, numOpenInside);
}

} // namespace

int64_t moec::reference::getKeyOrder(double key) {
  auto rounded = static_cast<float>(key);
  if (std::isnan(rounded))
    return kNaN;
  if (std::isinf(rounded))
    return rounded > 0 ? kInfinite : -kInfinite;
  int32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  int64_t ulps = bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) : bits;
  float size = std::fabs(rounded);
  double ulp =
      double(std::nextafter(size, std::numeric_limits<float>::infinity())) -
      double(size);
  return ulps * kPartsOfUlp +
         std::llround((key - double(rounded)) / ulp * double(kPartsOfUlp));
}

std::vector<int64_t>
moec::reference::getGroupOrder(const LayerSpec &spec,
                               const std::vector<double> &keys) {
  const RoutingSpec &routing = spec.routing;
  if (routing.numGroups <= 1 || routing.select != Select::TopK)
    return {};
  int64_t size = getGroupSize(spec);
  std::vector<int64_t> order;
  for (int64_t group = 0; group < routing.numGroups; ++group) {
    double first = -std::numeric_limits<double>::infinity(), second = first;
    for (int64_t i = group * size; i < (group + 1) * size; ++i) {
      if (keys[i] > first) {
        second = first;
        first = keys[i];
      } else if (keys[i] > second) {
        second = keys[i];
      }
    }
    order.push_back(getKeyOrder(routing.groupScore == GroupScore::Max
                                    ? first
                                    : static_cast<float>(first + second)));
  }
  return order;
}

std::vector<int64_t> moec::reference::choose(const LayerSpec &spec,
                                             const Orders &order,
                                             const Orders &groupOrder) {
  const RoutingSpec &routing = spec.routing;
  int64_t routes = spec.getNumRouted(), size = getGroupSize(spec);
  if (routing.select == Select::PerGroup) {
    std::vector<int64_t> ids;
    int64_t share = spec.topK / routing.numGroups;
    for (int64_t first = 0; first < routes; first += size) {
      std::vector<int64_t> best = rank(order, range(first, first + size));
      ids.insert(ids.end(), best.begin(), best.begin() + share);
    }
    return ids;
  }
  Orders open = order;
  if (!groupOrder.empty()) {
    std::vector<int64_t> groups = rank(groupOrder, range(0, routing.numGroups));
    groups.resize(routing.topkGroups);
    for (int64_t i = 0; i < routes; ++i)
      if (!llvm::is_contained(groups, i / size))
        open[i] = kExcluded;
  }
  std::vector<int64_t> best = rank(open, range(0, routes));
  best.resize(spec.topK);
  return best;
}

bool moec::reference::isAcceptable(const LayerSpec &spec, const Orders &order,
                                   const Orders &groupOrder,
                                   llvm::ArrayRef<int64_t> ids) {
  const RoutingSpec &routing = spec.routing;
  int64_t routes = spec.getNumRouted(), size = getGroupSize(spec);
  if (routing.select == Select::PerGroup) {
    int64_t share = spec.topK / routing.numGroups;
    for (int64_t group = 0; group < routing.numGroups; ++group)
      if (!accepts(order, range(group * size, (group + 1) * size),
                   ids.slice(group * share, share)))
        return false;
    return true;
  }
  if (groupOrder.empty())
    return accepts(order, range(0, routes), ids);
  return anyGroupSet(groupOrder, routing.topkGroups,
                     [&](const std::vector<int64_t> &groups) {
                       std::vector<int64_t> candidates;
                       for (int64_t i = 0; i < routes; ++i)
                         if (llvm::is_contained(groups, i / size))
                           candidates.push_back(i);
                       return accepts(order, candidates, ids);
                     });
}
