//===- MutateDescriptionTest.cpp - mutated JSON -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../fuzz/Readers.h"
#include "Mutator.h"

#include "gtest/gtest.h"

using namespace moec;
using namespace moec::testing;

namespace {

constexpr int kNumMutants = 5000;

/// Words that change the meaning of a description.
const llvm::StringRef kWords[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  ",",
                                  ":",
                                  "\"",
                                  "null",
                                  "true",
                                  "-1",
                                  "1e400",
                                  "\\u0000",
                                  "\xff",
                                  "\"top_k\"",
                                  "\"entry\": \"ids\",",
                                  "\"softmax\"",
                                  "\"sigmoid\"",
                                  "\"per_group\"",
                                  "\"num_valid_tokens\": true,",
                                  "\"gate_bias\": true,",
                                  "\"selection_bias\": true,",
                                  "\"num_zero_experts\": 2,",
                                  "\"latent_size\": 16,",
                                  "\"expert_bias\": true,",
                                  "\"weight_on_input\": true,"};

constexpr llvm::StringLiteral kSpec = R"({
  "moec_spec": 1, "name": "layer", "dtype": "bf16", "entry": "gate",
  "hidden_size": 64, "num_experts": 8, "top_k": 2, "intermediate_size": 32,
  "max_tokens": 128, "latent_size": 16, "gate_up_order": "interleaved",
  "expert_bias": true, "num_zero_experts": 0, "num_valid_tokens": false,
  "routing": {"score": "sigmoid", "select": "top_k", "num_groups": 4,
    "topk_groups": 2, "group_score": "top2_sum", "selection_bias": true,
    "renormalize": true, "renormalize_epsilon": 1e-20, "scale": 2.5},
  "activation": {"kind": "swigluoai", "alpha": 1.7, "limit": 7},
  "shared_experts": {"intermediate_size": 48, "gate": "sigmoid"},
  "placement": {"num_ranks": 1, "local_experts": [0, 2, 5]}
})";

constexpr llvm::StringLiteral kConfig = R"({
  "model_type": "deepseek_v3", "hidden_size": 64, "moe_intermediate_size": 32,
  "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1,
  "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc",
  "scoring_func": "sigmoid", "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "hidden_act": "silu",
  "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8",
    "fmt": "e4m3", "activation_scheme": "dynamic",
    "weight_block_size": [128, 128]}
})";

void runMutants(llvm::StringRef text, uint64_t seed) {
  DescriptionReader reader;
  Mutator mutator(seed, kWords);
  int numAccepted = 0;
  for (int i = 0; i < kNumMutants; ++i) {
    std::string mutant = mutator.mutate(text);
    Reading reading = reader.read(mutant);
    EXPECT_EQ(reading.broken, "") << mutant;
    numAccepted += reading.accepted;
  }
  // Enough mutants pass the reader's first check.
  EXPECT_GT(numAccepted, kNumMutants / 200);
  EXPECT_LT(numAccepted, kNumMutants / 2);
}

} // namespace

TEST(MutateDescription, Spec) { runMutants(kSpec, 1); }
TEST(MutateDescription, ModelConfig) { runMutants(kConfig, 2); }
