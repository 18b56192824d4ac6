//===- HardRules.h - rules of hard inputs -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_INPUTS_HARDRULES_H
#define MOEC_VERIFY_GPUTEST_INPUTS_HARDRULES_H

#include "Inputs.h"

#include <limits>

namespace moec::gputest {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The state of a rule that is being applied.
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
  /// Sets the ids of all slots by a function of (token, slot).
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

inline moert::Status needs(bool condition, const char *what) {
  return condition ? moert::Status::ok()
                   : moert::invalidArgument(std::string("they need ") + what);
}

inline moert::Status needsIds(const Hard &hard) {
  return needs(hard.hasIds(), "entry ids");
}

inline moert::Status needsKeys(const Hard &hard) {
  return needs(!hard.hasIds() && !hard.isHash(),
               "keys: entry gate or logits, no hash");
}

inline moert::Status needsLogits(const Hard &hard) {
  return needs(hard.spec.entry == Entry::Logits, "entry logits");
}

/// Rules about expert ids, in HardIds.cpp. The first three produce invalid ids;
/// the others distribute tokens over experts.
moert::Status minusOneIds(Hard &hard);
moert::Status outOfRangeIds(Hard &hard);
/// NaN and infinite weights on invalid slots.
moert::Status nanWeights(Hard &hard);
/// Expert e is chosen with a frequency proportional to 1 / (e + 1).
moert::Status zipf(Hard &hard);
/// All experts get the same number of tokens.
moert::Status balanced(Hard &hard);
/// The first and the last expert get all tokens.
moert::Status edgeExperts(Hard &hard);
/// Tokens choose one expert with several of their slots.
moert::Status duplicateIds(Hard &hard);
/// Expert e gets e tokens, as far as tokens suffice: tiles with every number of
/// rows occur.
moert::Status staircase(Hard &hard);

/// Rules about quantized weights, in HardWeights.cpp. Scales of f32 become
/// powers of two.
moert::Status ue8m0Scales(Hard &hard);
/// Groups of weights are zeros of either sign; so is a whole expert.
moert::Status zeroWeights(Hard &hard);
/// Scales are the least and the largest of their type; weights under the
/// largest are zeros.
moert::Status scaleEnds(Hard &hard);
/// A fifth of the scales and all of the last expert's w13 are zeros of either
/// sign, and the first global scale of each weight is 0; quantized values stay.
moert::Status zeroScales(Hard &hard);
/// A scale of the last expert's w2 is NaN, and all weights under it are zeros.
moert::Status nanScales(Hard &hard);
/// Two rows of the last expert's w2 have a NaN: the first element of one, the
/// last of the other.
moert::Status nanCodes(Hard &hard);
/// Scales of w13 are 2^-127, a subnormal float, and hidden states compensate
/// for it.
moert::Status leastScales(Hard &hard);
/// Zero points are 0, 255 and the largest int4 value.
moert::Status zeroPointEnds(Hard &hard);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_INPUTS_HARDRULES_H
