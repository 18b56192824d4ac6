//===- HardInputs.cpp - hard inputs -----------------------------*- C++ -*-===//
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

#include "HardRules.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

using namespace moec;
using namespace moec::gputest;
using moert::Status;

namespace {

/// Adds a row to the logits of every token; with a gate, through one input that
/// is 1 for every token.
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

/// Experts that every token can be made to choose, also with expert groups.
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

/// All tokens choose the same experts; all others are empty.
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

/// Experts of odd index receive no tokens, as far as top_k allows it.
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
  if (Status status = needs(even >= hard.topK, "experts without rows"); !status)
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

/// Experts share a few logits exactly, independent of the order of summation.
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

/// Logits are rounded to bf16, which makes some of them equal.
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
    // A router row for each value, so that every token gets them all.
    std::vector<int64_t> rows =
        drawIds(hard.draw, hard.routes, std::min(count, hard.routes));
    for (auto [row, value] : llvm::zip(rows, values))
      hard.set("gate.weight", row * hard.spec.hiddenSize, value);
    return Status::ok();
  }
  // Every third token stays finite, and the last one has no finite logit.
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

/// Every fourth token has only NaN logits.
Status nanRows(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  for (int64_t t = 1; t < hard.tokens; t += 4)
    for (int64_t e = 0; e < hard.routes; ++e)
      hard.set("router_logits", t * hard.routes + e, kNaN);
  return Status::ok();
}

/// Even tokens have one finite logit less than top_k, odd ones have none.
Status fewFinite(Hard &hard) {
  if (Status status = needsLogits(hard); !status)
    return status;
  for (int64_t t = 0; t < hard.tokens; ++t)
    for (int64_t e = t % 2 == 0 ? hard.topK - 1 : 0; e < hard.routes; ++e)
      hard.set("router_logits", t * hard.routes + (e * 7 + 3) % hard.routes,
               e % 2 == 0 ? kNaN : -kInfinity);
  return Status::ok();
}

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

/// Hidden states of a token up to 256 times as large: exp of a gate value
/// overflows.
Status wideHidden(Hard &hard) {
  constexpr int64_t powers = 9;
  const HostTensor *tensor = hard.get("hidden_states");
  int64_t size = hard.spec.hiddenSize;
  for (int64_t i = 0; i < tensor->getNumElements(); ++i)
    setElement(*tensor, i,
               getElement(*tensor, i) * double(1 << i / size % powers));
  return Status::ok();
}

/// Groups that share a scale, and whole rows, are zeros or smaller than any
/// scale.
Status zeroGroups(Hard &hard) {
  constexpr int64_t group = 128;
  int64_t size = hard.spec.hiddenSize;
  auto fill = [&](int64_t token, int64_t begin, int64_t end, double value) {
    for (int64_t h = begin; h < std::min(end, size); ++h)
      hard.set("hidden_states", token * size + h, value);
  };
  for (int64_t t = 0; t < hard.tokens; ++t) {
    if (t % 3 == 1)
      fill(t, 0, group, 0);
    if (t % 4 == 2)
      fill(t, 0, size, 0);
    if (t % 8 == 3)
      fill(t, group, size, 1e-12);
  }
  return Status::ok();
}

/// Tokens from `valid` on, and every other token of a mask, are padding that
/// holds garbage.
Status pad(Hard &hard, int64_t valid) {
  if (Status status = needs(hard.spec.numValidTokens || hard.spec.paddingMask,
                            "num_valid_tokens or padding_mask");
      !status)
    return status;
  hard.set("num_valid_tokens", 0, static_cast<double>(valid));
  auto fill = [&](int64_t token, llvm::StringRef name, int64_t columns,
                  double value, int64_t step = 1) {
    for (int64_t i = 0; i < columns; i += step)
      hard.set(name, token * columns + i, value);
  };
  for (int64_t t = 0; t < hard.tokens; ++t) {
    bool isMasked = hard.spec.paddingMask && t % 2 == 0;
    // Any byte but 0 means padding.
    hard.set("is_padding", t,
             isMasked ? static_cast<double>(t % 127 - 127) : 0);
    if (!isMasked && (!hard.spec.numValidTokens || t < valid))
      continue;
    fill(t, "hidden_states", hard.spec.hiddenSize, kNaN);
    fill(t, "router_logits", hard.routes, kNaN);
    fill(t, "topk_weights", hard.topK, kNaN);
    fill(t, "input_ids", 1, -5);
    fill(t, "topk_ids", hard.topK, static_cast<double>(hard.routes + 3),
         /*step=*/2);
  }
  return Status::ok();
}

Status padding(Hard &hard) { return pad(hard, (hard.tokens + 1) / 2); }
Status onlyPadding(Hard &hard) {
  Status status = needs(hard.spec.numValidTokens, "num_valid_tokens");
  return status ? pad(hard, 0) : status;
}

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
    {"wide_hidden", wideHidden},
    {"nan_hidden", nanHidden},
    {"zero_groups", zeroGroups},
    {"ue8m0_scales", ue8m0Scales},
    {"zero_weights", zeroWeights},
    {"scale_ends", scaleEnds},
    {"zero_scales", zeroScales},
    {"nan_scales", nanScales},
    {"nan_codes", nanCodes},
    {"least_scales", leastScales},
    {"zero_point_ends", zeroPointEnds},
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
  return moert::invalidArgument("unknown rule");
}
