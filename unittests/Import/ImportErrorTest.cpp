//===- ImportErrorTest.cpp - errors for bad input -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"

#include "llvm/ADT/StringExtras.h"

using namespace moec;
using namespace moec::testing;

namespace {

/// Extra fields of a spec, and a part of the expected message.
struct BadSpec {
  const char *fields;
  const char *message;
};

void expectErrors(llvm::ArrayRef<BadSpec> cases) {
  for (const BadSpec &bad : cases) {
    std::string messages = importError(makeSpec(bad.fields));
    EXPECT_NE(messages.find(bad.message), std::string::npos)
        << bad.fields << "\n"
        << messages;
    // One error with one caret.
    EXPECT_EQ(llvm::StringRef(messages).count(" error: "), 1u) << messages;
    EXPECT_EQ(llvm::StringRef(messages).count('^'), 1u) << messages;
  }
}

TEST(ImportError, CaretsStandUnderTheValue) {
  EXPECT_EQ(importError("{\"moec_spec\": 1, \"dtype\": \"f32\",\n"
                        " \"hidden_size\": \"64\", \"num_experts\": 8,\n"
                        " \"top_k\": 2, \"intermediate_size\": 32,\n"
                        " \"activation\": {\"kind\": \"silu\"}}"),
            "t.json:2:17: error: 'hidden_size' must be an integer from 1 to "
            "1048576, not \"64\"\n"
            "   \"hidden_size\": \"64\", \"num_experts\": 8,\n"
            "                  ^~~~\n");
}

TEST(ImportError, AllErrorsOfAFileAreShown) {
  std::string messages =
      importError(R"({"moec_spec": 1, "dtype": "f8", "top_k": 0})");
  for (const char *message :
       {"'dtype' must be \"f32\", \"bf16\" or \"f16\", not \"f8\"",
        "'hidden_size' is missing; it must be an integer from 1 to 1048576",
        "'num_experts' is missing; it must be an integer from 1 to 65536",
        "'top_k' must be an integer from 1 to 1024, not 0",
        "'intermediate_size' is missing", "'activation' is missing"})
    EXPECT_NE(messages.find(message), std::string::npos) << messages;
}

TEST(ImportError, Version) {
  for (const char *version : {"2", "\"1\"", "1.0", "null", "0"})
    EXPECT_NE(importError(std::string("{\"moec_spec\": ") + version + "}")
                  .find("'moec_spec' must be 1"),
              std::string::npos);
}

TEST(ImportError, NotAnObject) {
  EXPECT_EQ(importError("[1]"), "t.json:1:1: error: a model's configuration "
                                "must be an object, not a list\n"
                                "  [1]\n  ^~~\n");
}

TEST(ImportError, UnknownFields) {
  expectErrors({
      {R"("hiden_size": 3)",
       "unknown field 'hiden_size'; did you mean 'hidden_size'?"},
      {R"("routing": {"topk_group": 3})",
       "unknown field 'routing.topk_group'; did you mean 'topk_groups'?"},
      {R"("routing": {"frobnicate": 3})",
       "unknown field 'routing.frobnicate'; the fields here are score, "
       "select, gate_bias"},
      {R"("activation": {"kind": "silu", "limits": 3})",
       "unknown field 'activation.limits'; did you mean 'limit'?"},
      {R"("shared_experts": {"intermediate_size": 8, "gated": true})",
       "unknown field 'shared_experts.gated'; did you mean 'gate'?"},
      {R"("quantization": {"weight": "mxfp4", "w": 1})",
       "unknown field 'quantization.w'"},
      {R"("placement": {"rank": 0})", "unknown field 'placement.rank'"},
  });
}

TEST(ImportError, WrongTypesAndRanges) {
  expectErrors({
      {R"("max_tokens": -1)",
       "'max_tokens' must be an integer from 1 to 16777216, not -1"},
      {R"("max_tokens": 99999999999999999999999999)",
       "not 999999999999999999999999..."},
      {R"("max_tokens": 2.0)", "not 2.0"},
      {R"("max_tokens": true)", "not true"},
      {R"("max_tokens": null)", "not null"},
      {R"("max_tokens": [1])", "not a list"},
      {R"("num_zero_experts": -1)", "an integer from 0 to 65536, not -1"},
      {R"("num_valid_tokens": 1)",
       "'num_valid_tokens' must be true or false, not 1"},
      {R"("latent_size": 0)", "'latent_size' must be an integer from 1 to"},
      {R"("gate_up_order": "gateup")",
       "'gate_up_order' must be \"gate_up\", \"up_gate\" or \"interleaved\", "
       "not \"gateup\""},
      {R"("entry": 1)", "'entry' must be \"gate\", \"logits\" or \"ids\""},
      {R"("name": "")", "'name' must be 1 to 200 letters"},
      {R"("name": "a b")", "'name' must be 1 to 200 letters"},
      {R"("name": 5)", "'name' must be a string, not 5"},
      {R"("routing": [])", "'routing' must be an object, not a list"},
      {R"("routing": {"score": "relu"})",
       "'routing.score' must be \"identity\", \"softmax\", \"sigmoid\" or "
       "\"sqrtsoftplus\", not \"relu\""},
      {R"("routing": {"scale": "2"})",
       "'routing.scale' must be a number that f32 can hold, not \"2\""},
      {R"("routing": {"scale": 1e39})", "that f32 can hold, not 1e39"},
      {R"("routing": {"logit_softcap": 1e-46})", "f32 can hold, not 1e-46"},
      {R"("routing": {"hash_vocab_size": 0})", "'routing.hash_vocab_size'"},
      {R"("activation": {"kind": "swish"})", "'activation.kind' must be"},
      {R"("activation": {})", "'activation.kind' is missing"},
      {R"("activation": "silu")", "'activation' must be an object"},
      {R"("shared_experts": {})",
       "'shared_experts.intermediate_size' is missing"},
      {R"("quantization": {"weight": "int4"})",
       "'quantization.weight' must be \"fp8_block128\", \"mxfp4\", "
       "\"nvfp4\", \"mxfp8\", or an object "
       "such as {\"dtype\": \"fp8_e4m3\", \"scale\": \"channel\"}, not "
       "\"int4\""},
      {R"("quantization": {})", "'quantization.weight' is missing"},
      {R"("placement": {"num_ranks": 2})",
       "'placement.num_ranks' must be 1: the ranks of a layer are what "
       "'parallel' "
       "says"},
      {R"("placement": {"local_experts": 3})",
       "'placement.local_experts' must be a list, not 3"},
      {R"("placement": {"local_experts": [-1]})",
       "'placement.local_experts' must list ids of experts, not -1"},
  });
}

TEST(ImportError, Selection) {
  expectErrors({
      {R"("routing": {"num_groups": 3})",
       "8 experts ('num_experts') cannot be divided into 3 equal groups "
       "('routing.num_groups')"},
      {R"("num_zero_experts": 1, "routing": {"num_groups": 4})",
       "9 experts ('num_experts' and 'num_zero_experts') cannot be divided"},
      {R"("routing": {"num_groups": 8, "topk_groups": 1})",
       "'top_k' is 2, but the 1 groups that stay ('routing.topk_groups') "
       "have only 1 experts"},
      {R"("routing": {"num_groups": 2, "topk_groups": 3})",
       "'routing.topk_groups' is 3, but there are 2 groups "
       "('routing.num_groups')"},
      {R"("routing": {"num_groups": 8, "topk_groups": 4,
                      "group_score": "top2_sum"})",
       "group score \"top2_sum\" needs groups of at least 2 experts"},
      {R"("routing": {"select": "per_group", "num_groups": 4})",
       "'top_k' is 2, not a multiple of the 4 groups"},
      {R"("routing": {"select": "per_group", "num_groups": 2,
                      "topk_groups": 2})",
       "'routing.topk_groups' has no meaning with select \"per_group\""},
      {R"("routing": {"select": "hash"})",
       "select \"hash\" needs 'routing.hash_vocab_size'"},
      {R"("routing": {"hash_vocab_size": 10})",
       "'routing.hash_vocab_size' needs select \"hash\""},
      {R"("routing": {"select": "hash", "hash_vocab_size": 10,
                      "selection_bias": true})",
       "'routing.selection_bias' has no meaning with select \"hash\""},
      {R"("routing": {"select": "hash", "hash_vocab_size": 10,
                      "num_groups": 2})",
       "'routing.num_groups' has no meaning with select \"hash\""},
      {R"("routing": {"select": "sparsemixer"})",
       "set 'routing.score' to \"identity\""},
      {R"("routing": {"select": "sparsemixer", "score": "identity",
                      "weight": "sigmoid"})",
       "'routing.weight' has no meaning with select \"sparsemixer\""},
      {R"("routing": {"select": "sparsemixer", "score": "identity",
                      "selection_bias": true})",
       "'routing.selection_bias' has no meaning with select \"sparsemixer\""},
      {R"("routing": {"select": "sparsemixer", "score": "identity",
                      "nonfinite": "zero"})",
       "'routing.nonfinite' must be \"neg_inf\""},
      {R"("entry": "logits", "routing": {"gate_bias": true})",
       "'routing.gate_bias' needs entry \"gate\""},
      {R"("routing": {"logits_dtype": "bf16"})",
       "'routing.logits_dtype' needs entry \"logits\""},
      {R"("entry": "ids", "routing": {"score": "softmax"})",
       "'routing.score' has no meaning with entry \"ids\""},
  });
}

TEST(ImportError, Weights) {
  expectErrors({
      {R"("routing": {"weight": "softmax"})",
       "'routing.weight' \"softmax\" needs a score that is not a softmax"},
      {R"("routing": {"renormalize_epsilon": 1e-6})",
       "'routing.renormalize_epsilon' has no meaning without "
       "'routing.renormalize'"},
      {R"("routing": {"renormalize": true, "renormalize_epsilon": -1})",
       "'routing.renormalize_epsilon' must not be negative"},
      {R"("routing": {"weight_on_input": true})",
       "one expert per token only, but 'top_k' is 2"},
      {R"("quantized_input": true, "quantization": "fp8_block128")",
       "'quantized_input' needs entry \"ids\""},
      {R"("quantized_input": true, "entry": "ids")",
       "'quantized_input' needs a 'quantization' of w13 with 'activation'"},
      {R"("quantized_input": true, "entry": "ids", "latent_size": 8,
          "quantization": "fp8_block128")",
       "'quantized_input' does not go with 'latent_size'"},
      {R"("output": "rows")", "'output' must be \"sum\" or \"slots\""},
      {R"("output": "slots", "latent_size": 8)",
       "'output' \"slots\" returns the rows of slots, to which 'latent_size' "
       "adds nothing; remove 'latent_size', or write \"sum\""},
  });
}

TEST(ImportError, Activations) {
  expectErrors({
      {R"("activation": {"kind": "gelu", "limit": 7})",
       "'activation.limit' is not a parameter of activation \"gelu\""},
      {R"("activation": {"kind": "silu", "alpha": 7})",
       "'activation.alpha' is not a parameter of activation \"silu\""},
      {R"("activation": {"kind": "swigluoai", "beta": 7})",
       "'activation.beta' is not a parameter of activation \"swigluoai\""},
      {R"("activation": {"kind": "silu", "limit": 0})",
       "'activation.limit' must be greater than 0"},
      {R"("activation": {"kind": "situ", "beta": 0})",
       "'activation.beta' must not be 0"},
      {R"("gate_up_order": "up_gate", "activation": {"kind": "relu2_no_mul"})",
       "'gate_up_order' has no meaning for activation \"relu2_no_mul\""},
  });
}

TEST(ImportError, QuantizationAndPlacement) {
  expectErrors({
      {R"("latent_size": 48, "quantization": {"weight": "mxfp4"})",
       "'latent_size' must be a multiple of 32 with mxfp4"},
      {R"("shared_experts": {"intermediate_size": 48},
          "quantization": {"weight": "mxfp4"})",
       "'shared_experts.intermediate_size' must be a multiple of 32 with "
       "mxfp4"},
      {R"("quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor",
                                   "zero_point": true}})",
       "'quantization.weight.zero_point' belongs to \"int8\" and \"int4\""},
      {R"("quantization": {"weight": {"dtype": "int8", "scale": "channel",
                                   "minimum": true}})",
       "'quantization.weight.minimum' belongs to \"int8\" and \"int4\" in "
       "groups, with \"scale_dtype\" \"f32\", \"bf16\" or \"f16\" and without "
       "'zero_point' and 'global_scale'; remove it"},
      {R"("quantization": {"weight": {"dtype": "int8", "scale": "channel",
                                   "global_scale": true}})",
       "'quantization.weight.global_scale' is a factor of the scales of groups "
       "or blocks"},
      {R"("activation": {"kind": "silu"},
          "quantization": {"weight": {"dtype": "int8", "scale": "channel"},
                          "activation": {"dtype": "int8",
                                         "scale": {"group": 32}}})",
       "'quantization.activation.scale' of \"int8\" activations is \"tensor\" "
       "or \"token\""},
      {R"("activation": {"kind": "silu"},
          "quantization": {"weight": {"dtype": "int8", "scale": "channel"},
                          "activation": {"dtype": "int4", "scale": "token"}})",
       "'quantization.activation.dtype' of activations is \"fp8_e4m3\" or "
       "\"int8\""},
      {R"("quantization": {})", "'quantization.weight' is missing"},
      {R"("quantization": {"weight": {"dtype": "int2", "scale": "tensor"}})",
       "'quantization.weight.dtype' must be \"fp8_e4m3\", \"fp8_e5m2\", "
       "\"fp4_e2m1\", \"nf4\", \"int8\" or \"int4\", not \"int2\""},
      {R"("quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "token"}})",
       "'quantization.weight.scale' must be \"tensor\", \"channel\", "
       "{\"group\": 32} or {\"block\": [128, 128]}, not \"token\""},
      {R"("quantization": {"weight": {"dtype": "fp8_e4m3",
                                      "scale": {"block": [128]}}})",
       "'quantization.weight.scale' must be \"tensor\""},
      {R"("quantization": {"weight": {"dtype": "fp8_e4m3"}})",
       "'quantization.weight.scale' is missing"},
      {R"("activation": {"kind": "silu"},
          "quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
            "activation": {"dtype": "fp8_e4m3", "scale": "channel"}})",
       "'quantization.activation.scale' must be \"tensor\", \"token\" or "
       "{\"group\": 128}, not \"channel\""},
      {R"("activation": {"kind": "silu"},
          "quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
            "activation": {"dtype": "fp8_e4m3", "scale": "token",
                           "static": true}})",
       "'quantization.activation.static' scales belong to all rows; write "
       "\"scale\": \"tensor\", or remove 'static'"},
      {R"("activation": {"kind": "silu"},
          "quantization": {"weight": "fp8_block128",
            "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
       "'quantization.weight' = \"fp8_block128\" says what activations are"},
      {R"("quantization": {"weight": {"dtype": "fp8_e4m3",
                                      "scale": {"group": 64}}})",
       "'intermediate_size' must be a multiple of 64 with fp8_e4m3 by group of "
       "64"},
      {R"("placement": {"local_experts": []})",
       "'placement.local_experts' must name at least one expert"},
      {R"("placement": {"local_experts": [8]})",
       "names expert 8, but there are only 8 experts ('num_experts')"},
      {R"("placement": {"local_experts": [1, 2, 1]})", "names expert 1 twice"},
  });
}

TEST(ImportError, TooManyExperts) {
  std::string messages =
      importError(R"({"moec_spec": 1, "num_experts": 65537, "top_k": 1025})");
  for (const char *expected :
       {"'num_experts' must be an integer from 1 to 65536, not 65537",
        "'top_k' must be an integer from 1 to 1024, not 1025"})
    EXPECT_NE(messages.find(expected), std::string::npos) << messages;
}

TEST(ImportError, PaddingRecordsAndReplicas) {
  expectErrors({
      {R"("padding_mask": 1)", "'padding_mask' must be true or false, not 1"},
      {R"("record_load": "yes")",
       "'record_load' must be true or false, not \"yes\""},
      {R"("entry": "ids", "record_ids": true)",
       "'record_ids' has no meaning with entry \"ids\", whose caller has the "
       "ids and weights; remove it"},
      {R"("replicas": {"max_replicas": 2})",
       "'replicas.num_physical_experts' is missing"},
      {R"("replicas": {"num_physical_experts": 9})",
       "'replicas.max_replicas' is missing"},
      {R"("replicas": {"num_physical_experts": 7, "max_replicas": 1})",
       "'replicas.num_physical_experts' is 7, but each of the 8 experts "
       "('num_experts') is there once at least"},
      {R"("replicas": {"num_physical_experts": 9, "max_replicas": 3})",
       "'replicas.max_replicas' is 3, but with one of each other expert there "
       "is room for 2"},
      {R"("placement": {"local_experts": [1]},
          "replicas": {"num_physical_experts": 9, "max_replicas": 2})",
       "'placement.local_experts' are of one rank by itself"},
  });
}

TEST(ImportError, ReplicasOverRanks) {
  expectErrors({
      {R"("parallel": {"dp": 2},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'replicas' are whole experts, and 'parallel' without 'experts' gives "
       "each rank a part of every one; add \"experts\": \"linear\""},
      {R"("parallel": {"dp": 2, "experts": "round_robin"},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'parallel.experts' is \"round_robin\", but physical experts "
       "('replicas') are numbered rank by rank"},
      {R"("parallel": {"dp": 2, "experts": "linear"},
          "replicas": {"num_physical_experts": 9, "max_replicas": 2})",
       "'replicas.num_physical_experts' is 9, and must be a multiple of the 2 "
       "ranks (dp * pcp * tp), or 'parallel.experts' a list for each"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 7, 0, 5]]},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'parallel.experts' of rank 1 names expert 5 twice"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2]]},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'parallel.experts' has expert 7 on no rank"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 1]]},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'parallel.experts' of rank 1 names expert 8, but there are only 8"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 7, 0]]},
          "replicas": {"num_physical_experts": 10, "max_replicas": 2})",
       "'parallel.experts' gives rank 0 5 experts and rank 1 4; with "
       "'replicas', give all as many"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 7, 0, 1]]},
          "replicas": {"num_physical_experts": 12, "max_replicas": 2})",
       "'parallel.experts' gives 2 ranks 10 experts in all, but "
       "'replicas.num_physical_experts' is 12"},
      {R"("parallel": {"dp": 2, "experts": [[0, 1, 2, 3, 4], [5, 6, 7, 0, 1]]},
          "replicas": {"num_physical_experts": 10, "max_replicas": 1})",
       "'parallel.experts' has expert 0 on more ranks than "
       "'replicas.max_replicas' is 1"},
  });
}

TEST(ImportError, QuantizationOfOneProduct) {
  expectErrors({
      {R"("quantization": "int4")",
       "'quantization' must be \"fp8_block128\", \"mxfp4\", \"nvfp4\", "
       "\"mxfp8\", an "
       "object such as {\"weight\": \"mxfp4\"}, or null, not \"int4\""},
      {R"("quantization": ["mxfp4"])", "'quantization' must be"},
      {R"("quantization": {"w2": "mxfp4"})",
       "'quantization.weight' is missing"},
      {R"("quantization": {"weight": "mxfp4", "w2": "none"})",
       "'quantization.w2' must be \"fp8_block128\""},
      {R"("quantization": {"weight": "mxfp4", "w13": {}})",
       "'quantization.w13.weight' is missing"},
      {R"("quantization": {"weight": "mxfp4", "w1": null})",
       "unknown field 'quantization.w1'"},
      {R"("quantization": {"weight": "mxfp4",
                           "w13": {"weight": "mxfp4", "w2": null}})",
       "unknown field 'quantization.w13.w2'"},
      {R"("shared_experts": {"intermediate_size": 32, "quantization": false})",
       "'shared_experts.quantization' must be"},
      {R"("shared_experts": {"intermediate_size": 32, "quantization":
             {"weight": {"dtype": "int2", "scale": "tensor"}}})",
       "'shared_experts.quantization.weight.dtype' must be"},
      {R"("shared_experts": {"intermediate_size": 48, "quantization": "mxfp4"})",
       "'shared_experts.intermediate_size' must be a multiple of 32 with "
       "mxfp4"},
      {R"("quantization": {"weight": "fp8_block128",
             "w2": {"weight": {"dtype": "int8", "scale": {"group": 64}}}})",
       "'intermediate_size' must be a multiple of 64 with int8 by group of "
       "64"},
  });
  // The rows of a gemm that is not quantized may have any length.
  importOk(makeSpec(R"("quantization": "mxfp4", "shared_experts":
      {"intermediate_size": 48, "quantization": null})"));
  // The error for an operand that no target multiplies names the spec's field.
  SpecOverrides overrides;
  overrides.toCompile = true;
  const char *e5m2 = R"({"weight": {"dtype": "fp8_e5m2", "scale": "tensor"}})";
  for (auto [fields, field] :
       {std::pair(std::string(R"("quantization": {"weight": "mxfp4", "w2": )") +
                      e5m2 + "}",
                  "quantization.w2.weight"),
        std::pair(std::string(R"("shared_experts": {"intermediate_size": 32,
                      "quantization": {"weight": "mxfp4", "w13": )") +
                      e5m2 + "}}",
                  "shared_experts.quantization.w13.weight"),
        std::pair(std::string(R"("shared_experts": {"intermediate_size": 32,
                      "quantization": )") +
                      e5m2 + "}",
                  "shared_experts.quantization.weight")}) {
    std::string messages = importError(makeSpec(fields), overrides);
    EXPECT_NE(messages.find("'" + std::string(field) +
                            "' = \"fp8_e5m2 by tensor\" is described"),
              std::string::npos)
        << messages;
    EXPECT_EQ(llvm::StringRef(messages).count('^'), 1u) << messages;
  }
}

// field-bug: vllm#57772, sglang#35557, tokenspeed#1036, vllm#50925
// field-bug: sglang#39807
TEST(ImportError, QuantizationsThatNobodyMultiplies) {
  SpecOverrides overrides;
  overrides.toCompile = true;
  std::string messages =
      importError(makeSpec(R"("quantization": {"weight": {"dtype": "fp8_e5m2",
                                              "scale": "tensor"}})"),
                  overrides);
  EXPECT_NE(
      messages.find("'quantization.weight' = \"fp8_e5m2 by tensor\" is "
                    "described, but not "
                    "compiled; compiled are fp8_e4m3, fp4_e2m1, nf4, int8 "
                    "and int4"),
      std::string::npos)
      << messages;
  messages =
      importError(makeSpec(R"("activation": {"kind": "silu"}, "quantization": {
          "weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
          "activation": {"dtype": "fp8_e5m2", "scale": "token"}})"),
                  overrides);
  EXPECT_NE(
      messages.find("'quantization.activation' = \"fp8_e5m2 by token\" is "
                    "described, but not compiled; "
                    "compiled are activations of fp8_e4m3 and int8, and "),
      std::string::npos)
      << messages;
  messages =
      importError(makeSpec(R"("quantization": {"weight": {"dtype": "fp8_e4m3",
                                              "scale": {"block": [8, 24]}}})"),
                  overrides);
  EXPECT_NE(messages.find("= \"fp8_e4m3 by block of 8 x 24\" is described"),
            std::string::npos)
      << messages;
}

TEST(ImportError, TooManyExpertsPerToken) {
  std::string messages = importError(
      R"({"moec_spec": 1, "dtype": "f32", "hidden_size": 64,
"num_experts": 8, "top_k": 9, "intermediate_size": 32,
"activation": {"kind": "silu"}})");
  EXPECT_EQ(messages,
            "t.json:2:28: error: 'top_k' is 9, but there are only 8 experts "
            "('num_experts')\n"
            "  \"num_experts\": 8, \"top_k\": 9, \"intermediate_size\": 32,\n"
            "                             ^\n");
}

TEST(ImportError, Overrides) {
  SpecOverrides overrides;
  overrides.numExperts = 1;
  EXPECT_EQ(
      llvm::StringRef(importError(makeSpec(), overrides)).split('\n').first,
      "t.json:2:28: error: 'top_k' is 2, but there are only 1 experts "
      "(--num-experts)");
  overrides.numExperts = 6;
  EXPECT_NE(importError(makeSpec(R"("routing": {"num_groups": 4})"), overrides)
                .find("6 experts (--num-experts) cannot be divided into 4 "
                      "equal groups"),
            std::string::npos);
  overrides.numExperts = -3;
  EXPECT_EQ(importError(makeSpec(), overrides),
            "t.json: error: --num-experts must be an integer from 1 to 65536, "
            "not -3\n");
  overrides = SpecOverrides();
  overrides.maxTokens = INT64_MAX;
  EXPECT_EQ(importError(makeSpec(), overrides),
            "t.json: error: --max-tokens must be an integer from 1 to "
            "16777216, not 9223372036854775807\n");
  overrides = SpecOverrides();
  overrides.entry = Entry::Gate;
  EXPECT_NE(importError(makeSpec(R"("entry": "ids")"), overrides)
                .find("the layer starts from ids and weights"),
            std::string::npos);
}

TEST(ImportError, NothingCrashesOnMangledText) {
  // Every prefix of a spec, and the spec with each character replaced.
  std::string spec = makeSpec(
      R"("routing": {"score": "sigmoid", "scale": 2.5, "num_groups": 2},
         "placement": {"local_experts": [1, 2]})");
  for (size_t i = 0; i < spec.size(); ++i) {
    importError(spec.substr(0, i));
    for (char c : {'"', '}', '-', '9', '\0'}) {
      std::string mangled = spec;
      mangled[i] = c;
      Imported imported(mangled);
      EXPECT_EQ(imported.ok(), imported.messages.empty());
    }
  }
}

TEST(ImportError, FileThatIsNotThere) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diags(os);
  EXPECT_TRUE(failed(importJsonFile("/nonexistent.json", {}, diags)));
  EXPECT_EQ(messages, "/nonexistent.json: error: cannot be read: No such file "
                      "or directory\n");
}

} // namespace
