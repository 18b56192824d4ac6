//===- Router.cpp - from logits to ids and weights --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Router.h"

#include "Activation.h"
#include "Selection.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace moec;
using namespace moec::reference;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool isFinite(double x) { return std::isfinite(static_cast<float>(x)); }

/// Rounds scores to f32 below its normal range, where the error is visible in
/// ratios.
double roundSubnormal(double x) {
  return std::fabs(x) < 0x1p-126 ? static_cast<float>(x) : x;
}

double softplus(double x) {
  return roundSubnormal(x > 20 ? x : std::log1p(std::exp(x)));
}

double scoreSigmoid(double x) { return roundSubnormal(sigmoid(x)); }

/// Formula 2, with NaN and infinities by IEEE arithmetic.
std::vector<double> getScores(Score kind, llvm::ArrayRef<double> logits) {
  std::vector<double> value = logits.vec();
  switch (kind) {
  case Score::Identity:
    return value;
  case Score::Sigmoid:
    llvm::transform(value, value.begin(), scoreSigmoid);
    return value;
  case Score::SqrtSoftplus:
    llvm::transform(value, value.begin(),
                    [](double x) { return std::sqrt(softplus(x)); });
    return value;
  case Score::Softmax: {
    double largest = -kInfinity, total = 0;
    for (double x : value)
      largest = x > largest || std::isnan(x) ? x : largest;
    for (double &x : value)
      total += x = std::exp(x - largest);
    for (double &x : value)
      x /= total;
    return value;
  }
  }
  llvm_unreachable("every score is listed");
}

/// Whether keys are not rounded: a softmax without a bias has the order of its
/// logits, which may be compared instead. All other keys are f32.
bool hasUnroundedKeys(const RoutingSpec &routing) {
  return routing.score == Score::Softmax && !routing.selectionBias &&
         (routing.numGroups == 1 || routing.groupScore == GroupScore::Max);
}

double orOne(double denominator) { return denominator == 0 ? 1 : denominator; }

} // namespace

Router::Router(const Call &call)
    : spec(call.spec), selectionBias(call.spec.getNumRouted(), 0.0) {
  int64_t routes = spec.getNumRouted();
  const RoutingSpec &routing = spec.routing;
  if (routing.selectionBias)
    selectionBias = call.read("gate.selection_bias", 0, routes);
  if (routing.expertScale)
    expertScale = call.read("gate.expert_scale", 0, routes);
  if (isHash())
    hashTable =
        call.read("gate.hash_table", 0, *routing.hashVocabSize * spec.topK);
}

RoutedRow::RoutedRow(const Router &router, llvm::ArrayRef<double> logits,
                     int64_t inputId, llvm::ArrayRef<double> given)
    : router(&router) {
  const LayerSpec &spec = router.spec;
  const RoutingSpec &routing = spec.routing;
  std::vector<double> bounded = logits.vec();
  for (double &x : bounded)
    x *= routing.logitScale;
  if (routing.logitSoftcap)
    for (double &x : bounded)
      x = *routing.logitSoftcap * std::tanh(x / *routing.logitSoftcap);
  value = getScores(routing.score, bounded);
  isBad.resize(value.size());
  std::vector<double> keys(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    double bias = router.selectionBias[i];
    bool bad = !isFinite(value[i]);
    double key = (bad ? 0 : value[i]) + bias;
    if (routing.nonfinite != NonFinite::Zero) {
      bad |= !isFinite(value[i] + bias);
      if (bad)
        key = routing.nonfinite == NonFinite::NegInf ? -kInfinity : -1e30;
    }
    keys[i] = hasUnroundedKeys(routing) ? key : static_cast<float>(key);
    isBad[i] = bad;
    // Scores are f32: those that underflow have weight 0.
    if (bad || static_cast<float>(value[i]) == 0)
      value[i] = 0;
  }
  if (router.isHash()) {
    bool isInside = inputId >= 0 && inputId < *routing.hashVocabSize;
    for (int64_t j = 0; j < spec.topK; ++j)
      ids.push_back(isInside ? static_cast<int64_t>(
                                   router.hashTable[inputId * spec.topK + j])
                             : -1);
    return;
  }
  isDead = routing.nonfinite == NonFinite::NegInf &&
           llvm::all_of(keys, [](double key) { return key == -kInfinity; });
  if (!given.empty()) {
    ids.assign(given.begin(), given.end());
    return;
  }
  llvm::transform(keys, std::back_inserter(order), getKeyOrder);
  groupOrder = getGroupOrder(spec, keys);
  if (isDead) {
    ids.resize(spec.topK);
    std::iota(ids.begin(), ids.end(), 0);
  } else {
    ids = choose(spec, order, groupOrder);
  }
}

bool RoutedRow::accepts(llvm::ArrayRef<int64_t> other) const {
  if (llvm::equal(ids, other))
    return true;
  if (isDead || order.empty())
    return false;
  bool inRange = llvm::all_of(other, [&](int64_t id) {
    return id >= 0 && id < static_cast<int64_t>(order.size());
  });
  return inRange && isAcceptable(router->spec, order, groupOrder, other);
}

int64_t RoutedRow::getKeyDistance(int64_t a, int64_t b) const {
  return order.empty()
             ? 0
             : llvm::divideCeil(std::abs(order[a] - order[b]), kPartsOfUlp);
}

/// Whether the score of an id does not count as 0.
bool RoutedRow::counts(int64_t id) const {
  return id >= 0 && id < static_cast<int64_t>(value.size()) && !isBad[id];
}

/// Each weight is a softmax over the logits near the largest remaining one.
void RoutedRow::weighSparseMixer(llvm::ArrayRef<int64_t> which,
                                 llvm::MutableArrayRef<double> weights) const {
  std::vector<double> logits(value.size());
  for (size_t i = 0; i < value.size(); ++i)
    logits[i] = isBad[i] ? -kInfinity : value[i];
  std::vector<double> left = logits;
  for (size_t slot = 0; slot < which.size(); ++slot) {
    double top = *llvm::max_element(left);
    double total = 0, chosen = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      double far = (top - logits[i]) / std::max(std::fabs(logits[i]), top);
      double masked = far > 2 * 0.01 ? -kInfinity : left[i];
      double e = std::exp(masked - (top == -kInfinity ? 0 : top));
      total += e;
      if (static_cast<int64_t>(i) == which[slot])
        chosen = e;
    }
    weights[slot] = counts(which[slot]) ? chosen / orOne(total) : 0;
    left[which[slot]] = -kInfinity;
  }
}

/// Applies `weight` to the selected scores.
void RoutedRow::weighSelected(llvm::ArrayRef<int64_t> which,
                              llvm::MutableArrayRef<double> weights) const {
  RouteWeight kind = router->spec.routing.weight;
  double top = -kInfinity, total = 0;
  for (int64_t id : which)
    if (counts(id))
      top = std::max(top, value[id]);
  for (auto [id, weight] : llvm::zip(which, weights)) {
    weight = 0;
    if (!counts(id))
      continue;
    weight = kind == RouteWeight::Score     ? value[id]
             : kind == RouteWeight::Sigmoid ? scoreSigmoid(value[id])
                                            : std::exp(value[id] - top);
    total += weight;
  }
  if (kind == RouteWeight::Softmax)
    for (double &weight : weights)
      weight /= orOne(total);
}

void RoutedRow::weigh(llvm::ArrayRef<int64_t> which,
                      llvm::MutableArrayRef<double> weights) const {
  const RoutingSpec &routing = router->spec.routing;
  if (routing.select == Select::SparseMixer)
    weighSparseMixer(which, weights);
  else
    weighSelected(which, weights);
  if (routing.renormalize) {
    double total = routing.renormalizeEpsilon;
    for (double weight : weights)
      total += weight;
    for (double &weight : weights)
      weight /= isFinite(total) ? orOne(total) : 1;
  }
  for (auto [id, weight] : llvm::zip(which, weights)) {
    bool isInside = id >= 0 && id < static_cast<int64_t>(value.size());
    if (!router->expertScale.empty())
      weight *= router->expertScale[isInside ? id : 0];
    weight *= routing.scale;
    if (isDead)
      weight = 1.0 / static_cast<double>(which.size());
    weight = static_cast<float>(weight);
  }
}
