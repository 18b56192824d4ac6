//===- HardInputs.cpp - inputs that are hard on purpose ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rules of python/moec/reference/generate.py, which the numeric tests use,
// and distributions of tokens over experts.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace moec;
using namespace moec::gputest;
using moert::Status;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A rule at work.
struct Hard {
  Inputs &inputs;
  const LayerSpec &spec;
  double share;
  Draw draw;
  int64_t tokens, topK, routes;

  /// The tensor in memory, or null.
  const HostTensor *get(llvm::StringRef name) const {
    InputTensor *tensor = inputs.find(name);
    return tensor && !tensor->random ? &tensor->host : nullptr;
  }
  void set(llvm::StringRef name, int64_t i, double value) const {
    if (const HostTensor *tensor = get(name))
      setElement(*tensor, i, value);
  }
  bool hasIds() const { return spec.entry == Entry::Ids; }
  bool isHash() const {
    return !hasIds() && spec.routing.select == Select::Hash;
  }
  /// Ids of all slots, as a rule of (token, slot).
  void setIds(llvm::function_ref<int64_t(int64_t, int64_t)> id) const {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < topK; ++j)
        set("topk_ids", t * topK + j, static_cast<double>(id(t, j)));
  }
  void setLogits(llvm::function_ref<double(int64_t, int64_t)> logit) const {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < routes; ++e)
        set("router_logits", t * routes + e, logit(t, e));
  }
};

Status needs(bool condition, const char *what) {
  return condition ? Status::ok()
                   : moert::invalidArgument(std::string("they need ") + what);
}

Status needsIds(const Hard &hard) { return needs(hard.hasIds(), "entry ids"); }

Status needsKeys(const Hard &hard) {
  return needs(!hard.hasIds() && !hard.isHash(),
               "keys: entry gate or logits, no hash");
}

Status needsLogits(const Hard &hard) {
  return needs(hard.spec.entry == Entry::Logits, "entry logits");
}

/// Adds a row to the logits of every token; with a gate, through one input
/// that is 1 for every token.
void pushLogits(Hard &hard, llvm::ArrayRef<double> push) {
  if (const HostTensor *logits = hard.get("router_logits")) {
    hard.setLogits([&](int64_t t, int64_t e) {
      return getElement(*logits, t * hard.routes + e) + push[e];
    });
    return;
  }
  int64_t hidden = hard.spec.hiddenSize;
  for (int64_t t = 0; t < hard.tokens; ++t)
    hard.set("hidden_states", t * hidden, 1);
  for (int64_t e = 0; e < hard.routes; ++e)
    hard.set("gate.weight", e * hidden, push[e]);
}

/// Experts that every token can be made to take, groups or not.
std::vector<int64_t> getFavoured(Hard &hard) {
  int64_t groups = hard.spec.routing.numGroups, size = hard.routes / groups;
  std::vector<int64_t> chosen(hard.topK);
  if (hard.spec.routing.select == Select::PerGroup) {
    int64_t part = hard.topK / groups;
    for (int64_t i = 0; i < hard.topK; ++i)
      chosen[i] = i / part * size + i % part;
    return chosen;
  }
  int64_t starts = std::max<int64_t>(1, (hard.routes - hard.topK) / size + 1);
  std::iota(chosen.begin(), chosen.end(), hard.draw.below(starts) * size);
  return chosen;
}

/// Every token takes the same experts; all others are empty.
Status oneExpert(Hard &hard) {
  if (hard.isHash()) {
    auto id =
        static_cast<double>(hard.draw.below(*hard.spec.routing.hashVocabSize));
    for (int64_t t = 0; t < hard.tokens; ++t)
      hard.set("input_ids", t, id);
    return Status::ok();
  }
  std::vector<int64_t> chosen = getFavoured(hard);
  if (hard.hasIds()) {
    hard.setIds([&](int64_t, int64_t j) { return chosen[j]; });
    return Status::ok();
  }
  std::vector<double> push(hard.routes, 0);
  for (auto [j, id] : llvm::enumerate(chosen))
    push[id] = 12 + 0.5 * static_cast<double>(chosen.size() - 1 - j);
  pushLogits(hard, push);
  return Status::ok();
}

/// Experts of odd index receive nothing, as far as top_k allows it.
Status emptyExperts(Hard &hard) {
  int64_t even = (hard.routes + 1) / 2;
  if (!hard.hasIds() && !hard.isHash()) {
    std::vector<double> push(hard.routes, -12);
    for (int64_t e = 0; e < hard.routes; e += 2)
      push[e] = 0;
    pushLogits(hard, push);
    return Status::ok();
  }
  const char *name = hard.hasIds() ? "topk_ids" : "gate.hash_table";
  if (Status status = needs(even >= hard.topK, "experts that stay empty");
      !status)
    return status;
  int64_t rows = hard.get(name)->shape[0];
  for (int64_t row = 0; row < rows; ++row)
    for (auto [j, id] : llvm::enumerate(drawIds(hard.draw, even, hard.topK)))
      hard.set(name, row * hard.topK + static_cast<int64_t>(j),
               static_cast<double>(2 * id));
  return Status::ok();
}

void clearBiases(Hard &hard) {
  for (const char *name : {"gate.bias", "gate.selection_bias"})
    for (int64_t e = 0; e < hard.routes; ++e)
      hard.set(name, e, 0);
}

/// Experts share a few logits, exactly, whatever the order of summation.
Status ties(Hard &hard) {
  if (Status status = needsKeys(hard); !status)
    return status;
  clearBiases(hard);
  constexpr double levels[] = {0.25, 1.0, 1.5};
  if (hard.spec.entry == Entry::Logits) {
    hard.setLogits(
        [&](int64_t, int64_t) { return levels[hard.draw.below(3)]; });
    return Status::ok();
  }
  // Small integers over a power of two: every sum is exact in f32.
  int64_t hidden = hard.spec.hiddenSize;
  for (int64_t i = 0; i < hard.tokens * hidden; ++i)
    hard.set("hidden_states", i, static_cast<double>(hard.draw.below(5) - 2));
  double step = std::exp2(
      -std::round(std::log2(2 * std::sqrt(static_cast<double>(hidden)))));
  std::vector<double> kinds(3 * hidden);
  for (double &value : kinds)
    value = static_cast<double>(hard.draw.below(5) - 2) * step;
  for (int64_t e = 0; e < hard.routes; ++e)
    for (int64_t h = 0; h < hidden; ++h)
      hard.set("gate.weight", e * hidden + h, kinds[e % 3 * hidden + h]);
  return Status::ok();
}

/// All logits are equal: the lowest ids win.
Status equalLogits(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  clearBiases(hard);
  hard.setLogits([](int64_t, int64_t) { return 0.5; });
  return Status::ok();
}

/// Logits rounded as if they had been bf16, which makes some of them equal.
Status roundedLogits(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  const HostTensor &logits = *hard.get("router_logits");
  hard.setLogits([&](int64_t t, int64_t e) {
    return reference::roundTo(getElement(logits, t * hard.routes + e),
                              DType::BF16);
  });
  return Status::ok();
}

Status spoilLogits(Hard &hard, llvm::ArrayRef<double> values) {
  if (Status status = needs(!hard.hasIds(), "entry gate or logits"); !status)
    return status;
  auto count = static_cast<int64_t>(values.size());
  if (hard.spec.entry == Entry::Gate) {
    // One router row each: every token sees them.
    std::vector<int64_t> rows =
        drawIds(hard.draw, hard.routes, std::min(count, hard.routes));
    for (auto [row, value] : llvm::zip(rows, values))
      hard.set("gate.weight", row * hard.spec.hiddenSize, value);
    return Status::ok();
  }
  // Every third token stays clean, and the last has no finite logit left.
  for (int64_t t = 0; t < hard.tokens; ++t)
    for (int64_t e = 0; e < hard.routes; ++e)
      if (t == hard.tokens - 1 || (t % 3 != 0 && hard.draw.uniform() < 0.2))
        hard.set("router_logits", t * hard.routes + e,
                 values[hard.draw.below(count)]);
  return Status::ok();
}

Status nanLogits(Hard &hard) { return spoilLogits(hard, {kNaN}); }
Status infLogits(Hard &hard) {
  return spoilLogits(hard, {kInfinity, -kInfinity});
}

/// Every fourth token has nothing but NaN among its logits.
Status nanRows(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  for (int64_t t = 1; t < hard.tokens; t += 4)
    for (int64_t e = 0; e < hard.routes; ++e)
      hard.set("router_logits", t * hard.routes + e, kNaN);
  return Status::ok();
}

/// One finite logit less than top_k, or none in every other token.
Status fewFinite(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  for (int64_t t = 0; t < hard.tokens; ++t)
    for (int64_t e = t % 2 == 0 ? hard.topK - 1 : 0; e < hard.routes; ++e)
      hard.set("router_logits", t * hard.routes + (e * 7 + 3) % hard.routes,
               e % 2 == 0 ? kNaN : -kInfinity);
  return Status::ok();
}

/// Logits of standard deviation 8.
Status wideLogits(Hard &hard) {
  if (Status status = needs(!hard.hasIds(), "entry gate or logits"); !status)
    return status;
  const HostTensor *tensor = hard.get("router_logits");
  if (!tensor)
    tensor = hard.get("gate.weight");
  for (int64_t i = 0; i < tensor->getNumElements(); ++i)
    setElement(*tensor, i, 8 * getElement(*tensor, i));
  return Status::ok();
}

/// NaN among the hidden states of every fifth token.
Status nanHidden(Hard &hard) {
  for (int64_t t = 2; t < hard.tokens; t += 5)
    for (int64_t h = t % 3; h < hard.spec.hiddenSize; h += 3)
      hard.set("hidden_states", t * hard.spec.hiddenSize + h, kNaN);
  return Status::ok();
}

/// Puts values into a share of the slots and all of one token.
Status replaceIds(Hard &hard, llvm::ArrayRef<int64_t> values, double share,
                  bool spoilsWeights) {
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

std::vector<int64_t> getWildIds(const Hard &hard) {
  return {hard.routes,
          hard.routes + 5,
          std::numeric_limits<int32_t>::max(),
          -2,
          -7,
          std::numeric_limits<int32_t>::min()};
}

double getShare(const Hard &hard) { return hard.share > 0 ? hard.share : 0.3; }

Status minusOneIds(Hard &hard) {
  return replaceIds(hard, {-1}, getShare(hard), /*spoilsWeights=*/false);
}

Status outOfRangeIds(Hard &hard) {
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

/// NaN and infinite weights on the slots that do not count.
Status nanWeights(Hard &hard) {
  std::vector<int64_t> ids = getWildIds(hard);
  ids.push_back(-1);
  return replaceIds(hard, ids, getShare(hard), /*spoilsWeights=*/true);
}

/// Expert e is chosen as often as 1 / (e + 1) says.
Status zipf(Hard &hard) {
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

/// All experts get the same number of tokens.
Status balanced(Hard &hard) {
  hard.setIds(
      [&](int64_t t, int64_t j) { return (t * hard.topK + j) % hard.routes; });
  return needsIds(hard);
}

/// The first and the last expert get everything.
Status edgeExperts(Hard &hard) {
  hard.setIds([&](int64_t t, int64_t j) {
    return (t + j) % 2 == 0 ? 0 : hard.routes - 1;
  });
  return needsIds(hard);
}

/// Tokens that choose one expert with all their slots.
Status duplicateIds(Hard &hard) {
  hard.setIds([&](int64_t t, int64_t j) {
    return t % 2 == 0 ? t % hard.routes : (t + j / 2) % hard.routes;
  });
  return needsIds(hard);
}

/// Expert e gets e tokens, as far as they reach: every tail of a tile occurs.
Status staircase(Hard &hard) {
  int64_t expert = 0, left = 0;
  hard.setIds([&](int64_t, int64_t) {
    while (left == 0)
      left = expert = (expert + 1) % hard.routes;
    --left;
    return expert;
  });
  return needsIds(hard);
}

/// Tokens from some on are padding that holds garbage.
Status pad(Hard &hard, int64_t valid) {
  if (Status status = needs(hard.spec.numValidTokens, "num_valid_tokens");
      !status)
    return status;
  hard.set("num_valid_tokens", 0, static_cast<double>(valid));
  auto fill = [&](llvm::StringRef name, int64_t columns, double value) {
    for (int64_t i = valid * columns; i < hard.tokens * columns; ++i)
      hard.set(name, i, value);
  };
  fill("hidden_states", hard.spec.hiddenSize, kNaN);
  fill("router_logits", hard.routes, kNaN);
  fill("topk_weights", hard.topK, kNaN);
  fill("input_ids", 1, -5);
  for (int64_t i = valid * hard.topK; i < hard.tokens * hard.topK; i += 2)
    hard.set("topk_ids", i, static_cast<double>(hard.routes + 3));
  return Status::ok();
}

Status padding(Hard &hard) { return pad(hard, (hard.tokens + 1) / 2); }
Status onlyPadding(Hard &hard) { return pad(hard, 0); }

struct Rule {
  llvm::StringLiteral name;
  Status (*apply)(Hard &);
};

constexpr Rule kRules[] = {
    {"one_expert", oneExpert},
    {"empty_experts", emptyExperts},
    {"ties", ties},
    {"equal_logits", equalLogits},
    {"rounded_logits", roundedLogits},
    {"nan_logits", nanLogits},
    {"inf_logits", infLogits},
    {"nan_rows", nanRows},
    {"few_finite", fewFinite},
    {"wide_logits", wideLogits},
    {"nan_hidden", nanHidden},
    {"minus_one_ids", minusOneIds},
    {"out_of_range_ids", outOfRangeIds},
    {"nan_weights", nanWeights},
    {"zipf", zipf},
    {"balanced", balanced},
    {"edge_experts", edgeExperts},
    {"duplicate_ids", duplicateIds},
    {"staircase", staircase},
    {"padding", padding},
    {"only_padding", onlyPadding},
};

} // namespace

Status moec::gputest::applyHardInputs(const std::string &rule, double share,
                                      Inputs &inputs) {
  const LayerSpec &spec = inputs.getSpec();
  for (const Rule &candidate : kRules) {
    if (candidate.name != rule)
      continue;
    Hard hard = {inputs,
                 spec,
                 share,
                 Draw(inputs.getSeed(), "hard inputs " + rule),
                 inputs.getNumTokens(),
                 spec.topK,
                 spec.getNumRouted()};
    return candidate.apply(hard);
  }
  return moert::invalidArgument("there is no such rule");
}
