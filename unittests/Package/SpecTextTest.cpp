//===- SpecTextTest.cpp - tests of printed specs ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Package/SpecText.h"

#include "moec/Compiler/Registry.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Import/Import.h"
#include "llvm/Support/FileSystem.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace moec;

namespace {

class SpecTextTest : public ::testing::Test {
protected:
  SpecTextTest() : context(makeRegistry()) {}

  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  std::string printIR(const LayerSpec &spec) {
    OwningOpRef<ModuleOp> module = buildLayer(context, spec);
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }

  /// Prints, imports and compares the layers.
  void expectSame(const LayerSpec &spec) {
    std::string text = printLayerSpec(spec);
    Diagnostics diagnostics(llvm::errs());
    FailureOr<LayerSpec> read =
        importJson(SourceText("printed", text), {}, diagnostics);
    ASSERT_TRUE(succeeded(read)) << text;
    EXPECT_EQ(printLayerSpec(*read), text);
    EXPECT_EQ(printIR(*read), printIR(spec)) << text;
  }

  LayerSpec import(const std::string &text) {
    Diagnostics diagnostics(llvm::errs());
    FailureOr<LayerSpec> spec =
        importJson(SourceText("spec", text), {}, diagnostics);
    EXPECT_TRUE(succeeded(spec)) << text;
    return succeeded(spec) ? *spec : LayerSpec();
  }

  MLIRContext context;
};

} // namespace

TEST_F(SpecTextTest, SharedExpertsOfTheirOwn) {
  LayerSpec spec = import(R"({"moec_spec": 1, "dtype": "f32",
      "hidden_size": 16, "num_experts": 4, "top_k": 2, "intermediate_size": 8,
      "routing": {"logit_softcap": 30},
      "activation": {"kind": "silu", "limit": 7},
      "shared_experts": {"intermediate_size": 12, "scale": 0.5,
                         "activation": {"kind": "silu"}}})");
  EXPECT_EQ(spec.routing.logitSoftcap, 30.0);
  EXPECT_EQ(spec.sharedExperts->scale, 0.5);
  EXPECT_FALSE(spec.sharedExperts->activation->limit);
  expectSame(spec);
}

TEST_F(SpecTextTest, LogitsOf16Bits) {
  LayerSpec spec = import(R"({"moec_spec": 1, "dtype": "f32",
      "hidden_size": 16, "num_experts": 4, "top_k": 2, "intermediate_size": 8,
      "entry": "logits", "routing": {"logits_dtype": "f16"},
      "activation": {"kind": "silu"}})");
  EXPECT_EQ(spec.routing.logitsDtype, DType::F16);
  expectSame(spec);
}

TEST_F(SpecTextTest, EveryModelComesBack) {
  std::error_code error;
  int numModels = 0;
  for (llvm::sys::fs::directory_iterator file(MODELS, error), end;
       file != end && !error; file.increment(error)) {
    if (!llvm::StringRef(file->path()).ends_with(".json"))
      continue;
    for (std::optional<Entry> entry :
         {std::optional<Entry>(), std::optional<Entry>(Entry::Logits),
          std::optional<Entry>(Entry::Ids)}) {
      SCOPED_TRACE(file->path());
      SpecOverrides overrides;
      overrides.entry = entry;
      overrides.maxTokens = 77;
      overrides.numValidTokens = true;
      Diagnostics diagnostics(llvm::errs());
      FailureOr<LayerSpec> spec =
          importJsonFile(file->path(), overrides, diagnostics);
      ASSERT_TRUE(succeeded(spec));
      expectSame(*spec);
      ++numModels;
    }
  }
  EXPECT_GT(numModels, 50);
}

TEST_F(SpecTextTest, EveryFieldComesBack) {
  const char *sizes = "\"moec_spec\": 1, \"name\": \"a-b.c\", \"hidden_size\": "
                      "64, \"intermediate_size\": 32, ";
  for (const char *rest : {
           R"("dtype": "f16", "num_experts": 8, "top_k": 2,
              "num_zero_experts": 4, "expert_capacity": 16384, "latent_size": 48,
              "gate_up_order": "interleaved", "expert_bias": true,
              "strided_weights": true, "expert_columns": true,
              "max_tokens": 100, "num_valid_tokens": true,
              "routing": {"score": "sigmoid", "select": "top_k",
                "gate_bias": true, "selection_bias": true,
                "expert_scale": true, "num_groups": 4, "topk_groups": 2,
                "group_score": "max", "renormalize": true,
                "renormalize_epsilon": 1e-20, "scale": 2.5,
                "nonfinite": "lowest"},
              "activation": {"kind": "swigluoai", "limit": 5.5,
                "alpha": 1.25},
              "shared_experts": {"intermediate_size": 16, "gate": "sigmoid",
                "gate_bias": true, "columns": true})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "output_bias": true, "routing": {"gate_hidden_size": 24},
              "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2, "latent_size": 8,
              "routing": {"score": "sigmoid", "logit_scale": 0.25},
              "norms": {"latent_in": {"epsilon": 1e-5, "offset": 1},
                "expert": {"epsilon": 0.5, "weight_first": true},
                "latent_out": {"epsilon": 2}},
              "activation": {"kind": "gelu", "beta": 1})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 1,
              "routing": {"score": "identity", "weight": "sigmoid",
                "weight_on_input": true},
              "activation": {"kind": "situ", "beta": 3, "linear_beta": 0},
              "placement": {"local_experts": [5, 0, 7]})",
           R"("dtype": "f32", "num_experts": 8, "top_k": 2,
              "routing": {"score": "sqrtsoftplus", "select": "hash",
                "hash_vocab_size": 1000},
              "activation": {"kind": "relu2_no_mul"})",
           R"("dtype": "bf16", "entry": "ids", "num_experts": 8, "top_k": 1,
              "routing": {"weight_on_input": true},
              "activation": {"kind": "silu", "limit": 0.1})",
           R"("dtype": "bf16", "entry": "logits", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "padding_mask": true, "record_ids": true, "record_load": true, "output": "slots",
              "replicas": {"num_physical_experts": 12, "max_replicas": 4},
              "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "entry": "ids", "num_experts": 8, "top_k": 2,
              "quantized_input": true, "quantization": "fp8_block128",
              "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "record_ids": "uint8", "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "replay_ids": "int16", "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 4, "top_k": 2,
              "replicas": {"num_physical_experts": 6, "max_replicas": 2},
              "parallel": {"pcp": 2, "experts": [[0, 1, 2], [2, 3, 0]]},
              "activation": {"kind": "silu"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"},
              "quantization": {"weight": "fp8_block128"})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"}, "quantization": {
                "weight": {"dtype": "fp8_e4m3", "scale": {"block": [16, 32]},
                           "scale_dtype": "e8m0"},
                "activation": {"dtype": "fp8_e5m2", "scale": {"group": 16}}})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"}, "quantization": {
                "weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                "activation": {"dtype": "fp8_e4m3", "scale": "tensor",
                               "static": true}})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"}, "quantization": {
                "weight": {"dtype": "fp8_e4m3", "scale": {"group": 32}}})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"},
              "shared_experts": {"intermediate_size": 16,
                "quantization": null},
              "quantization": {"weight": "mxfp4", "w13": {
                "weight": {"dtype": "int4", "scale": {"group": 32}},
                "activation": {"dtype": "int8", "scale": "token"}}})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"},
              "shared_experts": {"intermediate_size": 16,
                "quantization": {"w13": null, "weight": {"dtype": "int8",
                                                  "scale": "channel"}}},
              "quantization": {"weight": "mxfp4", "w2": null})",
           R"("dtype": "bf16", "num_experts": 8, "top_k": 2,
              "activation": {"kind": "silu"},
              "shared_experts": {"intermediate_size": 32,
                "quantization": "mxfp4"})",
       })
    expectSame(import(std::string("{") + sizes + rest + "}"));
}
