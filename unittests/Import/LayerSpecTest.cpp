//===- LayerSpecTest.cpp - the JSON spec ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

TEST(LayerSpec, DefaultsAreThoseOfTheDocumentation) {
  LayerSpec spec = importOk(makeSpec());
  EXPECT_EQ(spec.name, "layer");
  EXPECT_EQ(spec.modelType, "");
  EXPECT_EQ(spec.dtype, DType::F32);
  EXPECT_EQ(spec.entry, Entry::Gate);
  EXPECT_EQ(spec.hiddenSize, 64);
  EXPECT_EQ(spec.numExperts, 8);
  EXPECT_EQ(spec.topK, 2);
  EXPECT_EQ(spec.intermediateSize, 32);
  EXPECT_EQ(spec.maxTokens, 16384);
  EXPECT_FALSE(spec.numValidTokens);
  EXPECT_EQ(spec.numZeroExperts, 0);
  EXPECT_FALSE(spec.latentSize);
  EXPECT_EQ(spec.gateUpOrder, GateUpOrder::GateUp);
  EXPECT_FALSE(spec.expertBias);
  EXPECT_FALSE(spec.stridedWeights);
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_EQ(spec.routing.select, Select::TopK);
  EXPECT_EQ(spec.routing.numGroups, 1);
  EXPECT_EQ(spec.routing.topkGroups, 1);
  EXPECT_EQ(spec.routing.groupScore, GroupScore::Max);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Score);
  EXPECT_FALSE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 0.0);
  EXPECT_EQ(spec.routing.scale, 1.0);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::Zero);
  EXPECT_FALSE(spec.routing.weightOnInput);
  EXPECT_FALSE(spec.routing.hashVocabSize);
  EXPECT_EQ(spec.activation.kind, Activation::Silu);
  EXPECT_FALSE(spec.activation.limit);
  EXPECT_FALSE(spec.sharedExperts);
  EXPECT_FALSE(spec.quantization);
  EXPECT_FALSE(spec.placement);
}

TEST(LayerSpec, ReadsEveryField) {
  LayerSpec spec = importOk(R"({
    "moec_spec": 1, "name": "a.b-c_D1", "dtype": "f16", "entry": "gate",
    "hidden_size": 256, "num_experts": 14, "top_k": 4,
    "intermediate_size": 128, "max_tokens": 512, "num_valid_tokens": true,
    "num_zero_experts": 2, "latent_size": 128,
    "gate_up_order": "up_gate", "expert_bias": true,
    "strided_weights": true, "expert_columns": true,
    "routing": {"score": "sigmoid", "select": "top_k", "gate_bias": true,
      "selection_bias": true, "expert_scale": true, "num_groups": 4,
      "topk_groups": 2, "group_score": "max", "weight": "softmax",
      "renormalize": true, "renormalize_epsilon": 1e-20, "scale": 2.5,
      "nonfinite": "lowest", "weight_on_input": false},
    "activation": {"kind": "swigluoai_uninterleave", "limit": 7,
      "alpha": 1.5, "beta": 1},
    "shared_experts": {"intermediate_size": 256, "gate": "sigmoid",
      "columns": true},
    "quantization": {"weight": "mxfp4"},
    "placement": {"num_ranks": 1, "local_experts": [3, 1]}})");
  EXPECT_EQ(spec.name, "a.b-c_D1");
  EXPECT_EQ(spec.dtype, DType::F16);
  EXPECT_EQ(spec.maxTokens, 512);
  EXPECT_TRUE(spec.numValidTokens);
  EXPECT_EQ(spec.getNumRouted(), 16);
  EXPECT_EQ(spec.getNumLocalExperts(), 2);
  EXPECT_EQ(spec.getExpertWidth(), 128);
  EXPECT_EQ(spec.gateUpOrder, GateUpOrder::UpGate);
  EXPECT_TRUE(spec.expertBias);
  EXPECT_TRUE(spec.expertColumns);
  EXPECT_TRUE(spec.stridedWeights);
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_TRUE(spec.routing.gateBias);
  EXPECT_TRUE(spec.routing.selectionBias);
  EXPECT_TRUE(spec.routing.expertScale);
  EXPECT_EQ(spec.routing.numGroups, 4);
  EXPECT_EQ(spec.routing.topkGroups, 2);
  EXPECT_EQ(spec.routing.groupScore, GroupScore::Max);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Softmax);
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 1e-20);
  EXPECT_EQ(spec.routing.scale, 2.5);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::Lowest);
  EXPECT_EQ(spec.activation.kind, Activation::SwigluOaiUninterleave);
  EXPECT_EQ(spec.activation.limit, 7.0);
  EXPECT_EQ(spec.activation.alpha, 1.5);
  EXPECT_EQ(spec.activation.beta, 1.0);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, 256);
  EXPECT_EQ(spec.sharedExperts->gate, SharedGate::Sigmoid);
  EXPECT_TRUE(spec.sharedExperts->columns);
  EXPECT_EQ(spec.quantization, getQuantization("mxfp4"));
  EXPECT_EQ(spec.placement->localExperts, (std::vector<int64_t>{3, 1}));
}

TEST(LayerSpec, QuantizationsAreAbbreviatedOrSaid) {
  auto read = [](const std::string &text) {
    return importOk(makeSpec(R"("activation": {"kind": "silu"},
                                "quantization": )" +
                             text))
        .quantization;
  };
  EXPECT_EQ(read(R"({"weight": {"dtype": "fp8_e4m3",
                                "scale": {"block": [128, 128]}},
                     "activation": {"dtype": "fp8_e4m3",
                                    "scale": {"group": 128}}})"),
            getQuantization("fp8_block128"));
  EXPECT_EQ(read(R"({"weight": {"dtype": "fp4_e2m1", "scale": {"group": 32},
                                "scale_dtype": "e8m0"}})"),
            getQuantization("mxfp4"));
  EXPECT_EQ(read(R"({"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                     "activation": {"dtype": "fp8_e4m3", "scale": "token"}})"),
            (QuantizationSpec{makeFp8(Granularity::Channel),
                              makeFp8(Granularity::Token)}));
  EXPECT_EQ(read(R"({"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
                     "activation": {"dtype": "fp8_e4m3", "scale": "tensor",
                                    "static": true}})"),
            (QuantizationSpec{makeFp8(Granularity::Tensor),
                              makeFp8(Granularity::Tensor, true)}));
  EXPECT_EQ(read(R"({"weight": {"dtype": "fp8_e4m3", "scale": "tensor"}})"),
            (QuantizationSpec{makeFp8(Granularity::Tensor), std::nullopt}));
  EXPECT_EQ(describe(QuantizationSpec{makeFp8(Granularity::Tensor),
                                      makeFp8(Granularity::Tensor, true)}),
            "fp8_e4m3 by tensor, activations fp8_e4m3 by static tensor");
}

TEST(LayerSpec, ProductsAreQuantizedByThemselves) {
  const ExpertQuantization none;
  ExpertQuantization mxfp4 = getQuantization("mxfp4");
  ExpertQuantization mixed = mxfp4;
  mixed.w2 = getQuantization("fp8_block128");
  ExpertQuantization first = mxfp4;
  first.w2.reset();
  struct Case {
    const char *quantization, *shared;
    ExpertQuantization routed, ofShared;
  } cases[] = {
      {R"("quantization": "mxfp4")", "", mxfp4, mxfp4},
      {R"("quantization": null)", "", none, none},
      {R"("quantization": {"weight": "mxfp4", "w2": "fp8_block128"})", "",
       mixed, mixed},
      {R"("quantization": {"weight": "mxfp4", "w2": null})",
       R"("quantization": {"weight": "mxfp4"})", first, mxfp4},
      {R"("quantization": {"weight": "fp8_block128",
                           "w13": {"weight": "mxfp4"}})",
       R"("quantization": null)", mixed, none},
      {R"("num_valid_tokens": false)", R"("quantization": "mxfp4")", none,
       mxfp4},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(std::string(test.quantization) + test.shared);
    LayerSpec spec =
        importOk(makeSpec(std::string(test.quantization) +
                          R"(, "shared_experts": {"intermediate_size": 32)" +
                          (*test.shared ? ", " : "") + test.shared + "}"));
    EXPECT_EQ(spec.quantization, test.routed);
    EXPECT_EQ(spec.sharedExperts->quantization, test.ofShared);
    EXPECT_EQ(spec.getQuantization("experts.w2_scale"), test.routed.w2);
    EXPECT_EQ(spec.getQuantization("shared_experts.w13"), test.ofShared.w13);
    EXPECT_FALSE(spec.getQuantization("shared_experts.gate"));
    EXPECT_EQ(spec.isQuantized(), test.routed != none || test.ofShared != none);
  }
  EXPECT_EQ(describe(mixed), "w13 mxfp4, w2 fp8_block128");
  EXPECT_EQ(describe(first), "w13 mxfp4, w2 not quantized");
  EXPECT_EQ(describe(none), "not quantized");
}

TEST(LayerSpec, EveryEnumValueHasItsNameAndComesBack) {
  EXPECT_EQ(stringify(Activation::SwigluOaiUninterleave),
            "swigluoai_uninterleave");
  EXPECT_EQ(getEnumNames<Activation>().size(), 14u);
  for (const auto &entry : getEnumNames<Activation>()) {
    EXPECT_EQ(symbolize<Activation>(entry.name), entry.value);
    LayerSpec spec = importOk(
        makeSpec("\"activation\": {\"kind\": \"" + entry.name.str() + "\"}"));
    EXPECT_EQ(spec.activation.kind, entry.value);
    EXPECT_EQ(spec.isGated(), !entry.name.ends_with("_no_mul"));
    EXPECT_EQ(spec.getFirstProductRows(32), spec.isGated() ? 64 : 32);
  }
  EXPECT_EQ(symbolize<Score>("relu"), std::nullopt);
}

TEST(LayerSpec, ActivationsHaveTheirDefaults) {
  auto activation = [](const char *text) {
    return importOk(makeSpec(std::string("\"activation\": ") + text))
        .activation;
  };
  ActivationSpec oai = activation(R"({"kind": "swigluoai"})");
  EXPECT_EQ(oai.alpha, 1.702);
  EXPECT_EQ(oai.limit, 7.0);
  EXPECT_FALSE(oai.beta);
  ActivationSpec uninterleave =
      activation(R"({"kind": "swigluoai_uninterleave"})");
  EXPECT_EQ(uninterleave.alpha, 1.0);
  EXPECT_EQ(uninterleave.beta, 0.0);
  EXPECT_FALSE(uninterleave.limit);
  EXPECT_EQ(activation(R"({"kind": "swiglustep"})").limit, 7.0);
  EXPECT_EQ(activation(R"({"kind": "gelu"})").beta, 0.0);
  ActivationSpec situ = activation(R"({"kind": "situ", "linear_beta": 0})");
  EXPECT_EQ(situ.beta, 4.0);
  EXPECT_EQ(situ.linearBeta, 0.0);
  EXPECT_EQ(activation(R"({"kind": "silu", "limit": 10})").limit, 10.0);
  EXPECT_EQ(activation(R"({"kind": "silu_no_mul", "limit": 1})").limit, 1.0);
}

TEST(LayerSpec, NonFiniteRuleFollowsTheRouting) {
  auto rule = [](const char *routing) {
    return importOk(makeSpec(std::string("\"routing\": ") + routing))
        .routing.nonfinite;
  };
  EXPECT_EQ(rule("{}"), NonFinite::Zero);
  EXPECT_EQ(rule(R"({"score": "sigmoid"})"), NonFinite::Zero);
  EXPECT_EQ(rule(R"({"score": "sqrtsoftplus"})"), NonFinite::Lowest);
  EXPECT_EQ(rule(R"({"num_groups": 2})"), NonFinite::NegInf);
  EXPECT_EQ(rule(R"({"score": "sqrtsoftplus", "num_groups": 2})"),
            NonFinite::NegInf);
  EXPECT_EQ(rule(R"({"score": "identity", "weight": "softmax"})"),
            NonFinite::NegInf);
  EXPECT_EQ(rule(R"({"score": "identity", "select": "sparsemixer"})"),
            NonFinite::NegInf);
  EXPECT_EQ(rule(R"({"num_groups": 2, "nonfinite": "zero"})"), NonFinite::Zero);
}

TEST(LayerSpec, GroupScoreFollowsTheBias) {
  auto score = [](const char *routing) {
    return importOk(makeSpec(std::string("\"routing\": ") + routing))
        .routing.groupScore;
  };
  EXPECT_EQ(score(R"({"num_groups": 2})"), GroupScore::Max);
  EXPECT_EQ(score(R"({"num_groups": 2, "selection_bias": true})"),
            GroupScore::Top2Sum);
}

TEST(LayerSpec, EntryIdsTakesTheWeightOnTheInput) {
  LayerSpec spec = importOk(
      R"({"moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 8,
          "num_experts": 4, "top_k": 1, "intermediate_size": 8,
          "routing": {"weight_on_input": true},
          "activation": {"kind": "gelu"}})");
  EXPECT_TRUE(spec.routing.weightOnInput);
}

TEST(LayerSpec, OverridesReplaceFields) {
  SpecOverrides overrides;
  overrides.numExperts = 4;
  overrides.maxTokens = 7;
  overrides.numValidTokens = true;
  overrides.entry = Entry::Logits;
  LayerSpec spec = importOk(
      makeSpec(R"("routing": {"gate_bias": true, "score": "sigmoid"})"),
      overrides);
  EXPECT_EQ(spec.numExperts, 4);
  EXPECT_EQ(spec.maxTokens, 7);
  EXPECT_TRUE(spec.numValidTokens);
  EXPECT_EQ(spec.entry, Entry::Logits);
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  // Logits already include the router's bias.
  EXPECT_FALSE(spec.routing.gateBias);
}

// The weights of a spec may be those of one layer of a model.
TEST(LayerSpec, LayerIsThatOfTheWeights) {
  SpecOverrides overrides;
  overrides.layer = 3;
  overrides.readsWeights = true;
  EXPECT_EQ(importOk(makeSpec(), overrides).layerIndex, 3);
  overrides.readsWeights = false;
  EXPECT_NE(importError(makeSpec(), overrides)
                .find("error: --layer=3: a spec is of one layer, and no "
                      "weights of a model are read"),
            std::string::npos);
}

TEST(LayerSpec, OverrideToIdsDropsWhatTheIdsInclude) {
  SpecOverrides overrides;
  overrides.entry = Entry::Ids;
  LayerSpec spec = importOk(
      makeSpec(R"("routing": {"score": "sigmoid", "selection_bias": true,
                              "num_groups": 4, "topk_groups": 2})"),
      overrides);
  EXPECT_EQ(spec.entry, Entry::Ids);
  EXPECT_FALSE(spec.routing.selectionBias);
  EXPECT_EQ(spec.routing.numGroups, 1);
}

} // namespace
