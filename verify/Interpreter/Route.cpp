//===- Route.cpp - formulas 2 to 5 of docs/use/layers.md --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace moert;
using llvm::MutableArrayRef;

namespace moec::interpreter {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestKey = -1e30f;
constexpr double kSparseMixerEpsilon = 0.01;

/// Routes one token at a time.
class Router {
public:
  Router(const RouteArguments &arguments, moe::RoutingAttr routing,
         RegionEvaluator &score, RegionEvaluator *key, RegionEvaluator &weight)
      : arguments(arguments), routing(routing), score(score), key(key),
        weight(weight), numRoutes(arguments.logits.shape[1]),
        topK(routing.getTopK()), values(numRoutes), keys(numRoutes),
        bad(numRoutes), out(numRoutes), weights(topK) {}

  /// Ids and weights of token `token`.
  void run(int64_t token);
  /// Ids of a token that is padding.
  void clear(int64_t token) {
    ids.assign(topK, -1);
    storeIds(token);
  }

private:
  void computeScores(int64_t token);
  bool computeKeys();
  float getKey(int64_t expert);
  void select(int64_t token);
  void selectBest(int64_t begin, int64_t end, int64_t count);
  void selectGroups();
  void selectByHash(int64_t token);
  void takeGiven(int64_t token);
  void storeIds(int64_t token);
  void selectSparseMixer();
  void computeWeights();
  void softmaxSelected();
  void finishWeights();

  bool inRange(int32_t id) const { return id >= 0 && id < numRoutes; }

  const RouteArguments &arguments;
  moe::RoutingAttr routing;
  RegionEvaluator &score;
  /// Null if keys are sums of values and biases.
  RegionEvaluator *key;
  RegionEvaluator &weight;
  int64_t numRoutes;
  int64_t topK;
  std::vector<float> values;
  std::vector<float> keys;
  /// Experts whose value counts as 0, in the weight too.
  std::vector<char> bad;
  /// Experts that can no longer be selected.
  std::vector<char> out;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

} // namespace

/// Softmax over the elements with `use(i)`; 0 for others.
template <typename Predicate>
static void softmax(MutableArrayRef<float> values, Predicate use) {
  double largest = -kInfinity;
  for (size_t i = 0; i < values.size(); ++i)
    if (use(i) && (std::isnan(values[i]) || values[i] > largest))
      largest = values[i];
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (use(i))
      sum += std::exp(values[i] - largest);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = use(i) ? std::exp(values[i] - largest) / sum : 0;
}

void Router::computeScores(int64_t token) {
  load(arguments.logits, token * numRoutes, MutableArrayRef<float>(values));
  for (float &value : values)
    value = score.evaluate(value);
  if (routing.getSoftmax() == moe::Softmax::All)
    softmax(values, [](size_t) { return true; });
}

/// The key of a value, before the rule for keys that are not finite.
float Router::getKey(int64_t expert) {
  llvm::SmallVector<float, 2> terms = {values[expert]};
  if (arguments.selectionBias)
    terms.push_back(loadAt(*arguments.selectionBias, expert));
  if (key)
    return key->evaluate(terms);
  return terms.size() > 1 ? terms[0] + terms[1] : terms[0];
}

/// Computes values and keys by the rule for scores that are not finite. False
/// if no key is left (rule neg_inf): the row has its fixed result.
bool Router::computeKeys() {
  moe::NonFinite rule = routing.getNonfinite();
  if (routing.getSelect() == moe::Select::SparseMixer)
    rule = moe::NonFinite::NegInf;
  float largest = -kInfinity;
  for (int64_t e = 0; e < numRoutes; ++e) {
    bad[e] = !std::isfinite(values[e]);
    if (bad[e] && rule == moe::NonFinite::Zero)
      values[e] = 0;
    keys[e] = getKey(e);
    if (rule != moe::NonFinite::Zero && !std::isfinite(keys[e])) {
      bad[e] = true;
      keys[e] = rule == moe::NonFinite::NegInf ? -kInfinity : kLowestKey;
    }
    if (bad[e])
      values[e] = 0;
    // Only a bias can still be NaN; the order stays total.
    if (std::isnan(keys[e]))
      keys[e] = -kInfinity;
    largest = std::max(largest, keys[e]);
  }
  return rule != moe::NonFinite::NegInf || largest != -kInfinity;
}

/// Appends the best `count` of experts begin .. end-1, best first.
void Router::selectBest(int64_t begin, int64_t end, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t best = -1;
    for (int64_t e = begin; e < end; ++e)
      if (!out[e] && (best < 0 || keys[e] > keys[best]))
        best = e;
    if (best >= 0)
      out[best] = true;
    ids.push_back(best);
  }
}

/// Excludes all experts except those of the best groups.
void Router::selectGroups() {
  int64_t numGroups = routing.getNumGroups();
  int64_t size = numRoutes / numGroups;
  std::vector<float> groupKeys(numGroups);
  for (int64_t g = 0; g < numGroups; ++g) {
    std::vector<float> group(keys.begin() + g * size,
                             keys.begin() + (g + 1) * size);
    llvm::sort(group, std::greater<float>());
    groupKeys[g] = group[0];
    if (routing.getGroupScore() == moe::GroupScore::Top2Sum && size > 1)
      groupKeys[g] += group[1];
  }
  llvm::fill(out, true);
  std::vector<char> taken(numGroups);
  for (int64_t i = 0; i < routing.getTopkGroups(); ++i) {
    int64_t best = -1;
    for (int64_t g = 0; g < numGroups; ++g)
      if (!taken[g] && (best < 0 || groupKeys[g] > groupKeys[best]))
        best = g;
    taken[best] = true;
    std::fill_n(out.begin() + best * size, size, false);
  }
}

void Router::selectByHash(int64_t token) {
  int32_t row = arguments.inputIds->as<int32_t>()[token];
  const TensorRef &table = *arguments.hashTable;
  for (int64_t j = 0; j < topK; ++j)
    ids.push_back(row >= 0 && row < table.shape[0]
                      ? table.as<int32_t>()[row * topK + j]
                      : -1);
}

/// The id that `index` holds; bytes have no sign.
static int32_t loadId(const TensorRef &tensor, int64_t index) {
  switch (tensor.dtype) {
  case DType::I16:
    return tensor.as<int16_t>()[index];
  case DType::I8:
    return tensor.as<uint8_t>()[index];
  default:
    return tensor.as<int32_t>()[index];
  }
}

static void storeId(const TensorRef &tensor, int64_t index, int32_t id) {
  switch (tensor.dtype) {
  case DType::I16:
    tensor.as<int16_t>()[index] = static_cast<int16_t>(id);
    return;
  case DType::I8:
    tensor.as<uint8_t>()[index] = static_cast<uint8_t>(id);
    return;
  default:
    tensor.as<int32_t>()[index] = id;
  }
}

void Router::takeGiven(int64_t token) {
  for (int64_t j = 0; j < topK; ++j) {
    int32_t id = loadId(*arguments.givenIds, token * topK + j);
    ids.push_back(inRange(id) ? id : -1);
  }
}

void Router::storeIds(int64_t token) {
  for (auto [j, id] : llvm::enumerate(ids)) {
    int64_t index = token * topK + static_cast<int64_t>(j);
    arguments.ids.as<int32_t>()[index] = id;
    if (arguments.recordedIds)
      storeId(*arguments.recordedIds, index, inRange(id) ? id : -1);
  }
}

/// Two rounds: selects the largest remaining logit, weighed among those near
/// it.
void Router::selectSparseMixer() {
  std::vector<char> removed(numRoutes);
  for (int64_t round = 0; round < topK; ++round) {
    int64_t best = -1;
    for (int64_t e = 0; e < numRoutes; ++e)
      if (!removed[e] && (best < 0 || keys[e] > keys[best]))
        best = e;
    double largest = keys[best];
    double sum = 0;
    for (int64_t e = 0; e < numRoutes; ++e) {
      double value = keys[e];
      bool masked = (largest - value) / std::max(std::fabs(value), largest) >
                    2 * kSparseMixerEpsilon;
      if (!masked && !removed[e] && !bad[e])
        sum += std::exp(value - largest);
    }
    ids.push_back(best);
    weights[round] = bad[best] ? 0 : 1 / sum;
    removed[best] = true;
  }
}

void Router::select(int64_t token) {
  if (arguments.givenIds)
    return takeGiven(token);
  llvm::fill(out, false);
  switch (routing.getSelect()) {
  case moe::Select::TopK:
    if (routing.getNumGroups() > 1)
      selectGroups();
    return selectBest(0, numRoutes, topK);
  case moe::Select::PerGroup: {
    int64_t numGroups = routing.getNumGroups();
    int64_t size = numRoutes / numGroups;
    for (int64_t g = 0; g < numGroups; ++g)
      selectBest(g * size, (g + 1) * size, topK / numGroups);
    return;
  }
  case moe::Select::Hash:
    return selectByHash(token);
  case moe::Select::SparseMixer:
    return selectSparseMixer();
  }
}

void Router::softmaxSelected() {
  std::vector<char> used(topK);
  for (int64_t j = 0; j < topK; ++j)
    used[j] = inRange(ids[j]) && !bad[ids[j]];
  softmax(MutableArrayRef<float>(weights), [&](size_t j) { return used[j]; });
}

void Router::computeWeights() {
  if (routing.getSelect() != moe::Select::SparseMixer)
    for (int64_t j = 0; j < topK; ++j)
      weights[j] =
          inRange(ids[j]) && !bad[ids[j]] ? weight.evaluate(values[ids[j]]) : 0;
  if (routing.getSoftmax() == moe::Softmax::Selected)
    softmaxSelected();
  finishWeights();
}

void Router::finishWeights() {
  if (routing.getRenormalize()) {
    double sum = 0;
    for (float w : weights)
      sum += w;
    double denominator = sum + routing.getEpsilonValue();
    if (denominator != 0 && std::isfinite(denominator))
      for (float &w : weights)
        w = w / denominator;
  }
  float scale = routing.getScaleValue();
  for (int64_t j = 0; j < topK; ++j) {
    if (arguments.expertScale && inRange(ids[j]))
      weights[j] *= loadAt(*arguments.expertScale, ids[j]);
    weights[j] *= scale;
  }
}

void Router::run(int64_t token) {
  ids.clear();
  computeScores(token);
  bool alive = computeKeys();
  if (alive || routing.getSelect() == moe::Select::Hash) {
    select(token);
    computeWeights();
  } else {
    if (arguments.givenIds)
      takeGiven(token);
    for (int64_t j = 0; j < topK; ++j) {
      if (!arguments.givenIds)
        ids.push_back(j);
      weights[j] = 1.0f / topK;
    }
  }
  storeIds(token);
  llvm::copy(weights, arguments.weights.as<float>() + token * topK);
}

/// Checks what the formulas rely on and verifiers do not check.
static Status checkRoute(const RouteArguments &arguments,
                         moe::RoutingAttr routing) {
  int64_t numRoutes = arguments.logits.shape[1];
  int64_t topK = routing.getTopK();
  int64_t numGroups = routing.getNumGroups();
  if (topK < 1 || topK > numRoutes)
    return invalidArgument("top_k is " + std::to_string(topK) + ", with " +
                           std::to_string(numRoutes) +
                           " experts it must be from 1 to this number");
  if (numGroups < 1 || numRoutes % numGroups != 0 ||
      routing.getTopkGroups() < 1 || routing.getTopkGroups() > numGroups)
    return invalidArgument("num_groups does not divide the experts, or "
                           "topk_groups is not 1 to num_groups");
  bool tooMany = topK > routing.getTopkGroups() * (numRoutes / numGroups);
  if (routing.getSelect() == moe::Select::TopK && tooMany)
    return invalidArgument(
        "top_k is larger than topk_groups groups of experts");
  if (routing.getSelect() == moe::Select::PerGroup && topK % numGroups != 0)
    return invalidArgument("select = per_group needs a top_k that num_groups "
                           "divides");
  if (routing.getSelect() == moe::Select::Hash &&
      (!arguments.inputIds || !arguments.hashTable))
    return invalidArgument("select = hash needs input_ids and hash_table");
  for (auto [name, tensor] :
       {std::pair<const char *, OptionalRef>("logits", arguments.logits),
        {"input_ids", arguments.inputIds},
        {"is_padding", arguments.isPadding},
        {"given", arguments.givenIds},
        {"record", arguments.recordedIds},
        {"ids", arguments.ids},
        {"weights", arguments.weights}})
    if (tensor)
      if (Status status = checkRows(name, *tensor, arguments.tokens); !status)
        return status;
  return Status::ok();
}

Status route(const RouteArguments &arguments, moe::RoutingAttr routing,
             RegionEvaluator &score, RegionEvaluator *key,
             RegionEvaluator &weight) {
  if (Status status = checkRoute(arguments, routing); !status)
    return status;
  Router router(arguments, routing, score, key, weight);
  int64_t valid = validTokens(arguments.numValidTokens, arguments.tokens);
  int64_t topK = routing.getTopK();
  for (int64_t t = 0; t < arguments.tokens; ++t) {
    if (t < valid && !isPaddingRow(arguments.isPadding, t)) {
      router.run(t);
      continue;
    }
    router.clear(t);
    std::fill_n(arguments.weights.as<float>() + t * topK, topK, 0.0f);
  }
  return Status::ok();
}

} // namespace moec::interpreter
