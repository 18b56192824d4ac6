//===- HardWeightsTest.cpp - tests of hard quantized weights ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuTest/Inputs/Inputs.h"
#include "moec/Import/Import.h"
#include "moec/Support/Diagnostics.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace moec;
using namespace moec::gputest;

namespace {

/// Inputs of a layer of 64 hidden and 32 intermediate elements with 3 experts.
moert::Result<Inputs> makeInputs(const std::string &quantization,
                                 const std::string &rule,
                                 const std::string &dtype = "bf16") {
  std::string text =
      R"({"moec_spec": 1, "entry": "ids", "hidden_size": 64, "num_experts": 3,
          "top_k": 2, "intermediate_size": 32, "activation": {"kind": "silu"},
          "shared_experts": {"intermediate_size": 96}, "dtype": ")" +
      dtype + R"(", "quantization": )" + quantization + "}";
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  llvm::FailureOr<LayerSpec> spec =
      importJson(SourceText("layer", text), SpecOverrides(), diagnostics);
  if (failed(spec))
    return moert::invalidArgument(messages);
  LayerCase layerCase;
  layerCase.tokens = 6;
  layerCase.hard = rule;
  return Inputs::create(layerCase, *spec);
}

/// The output of a layer whose tokens all choose these two experts.
std::vector<double> evaluate(Inputs &inputs, int64_t first, int64_t second) {
  reference::Call call = inputs.makeCall(1);
  call.spec.sharedExperts.reset();
  reference::Decision decision;
  for (int64_t t = 0; t < inputs.getNumTokens(); ++t) {
    decision.ids.insert(decision.ids.end(), {first, second});
    decision.weights.insert(decision.weights.end(), {0.5, 0.5});
  }
  reference::Matrix row = reference::evaluate(call, decision, {0});
  return std::vector<double>(row.row(0), row.row(0) + row.getNumColumns());
}

std::string weights(const char *dtype, const char *more) {
  return std::string(R"({"weight": {"dtype": ")") + dtype +
         R"(", "scale": {"group": 16}, )" + more + "}}";
}

const std::string kForms[] = {
    R"({"weight": "mxfp4"})",
    R"({"weight": "nvfp4"})",
    weights("int4", R"("scale_dtype": "bf16")"),
    weights("int4", R"("scale_dtype": "f16", "zero_point": true)"),
    weights("int8", R"("scale_dtype": "f32", "zero_point": true)"),
    weights("int8", R"("scale_dtype": "f16")"),
    weights("fp8_e4m3", R"("scale_dtype": "e8m0")"),
    R"({"weight": "mxfp4", "w2": {"weight": {"dtype": "int8",
        "scale": {"group": 16}, "scale_dtype": "f16"}}})",
    weights("int4", R"("minimum": true)"),
    weights("int8", R"("scale_dtype": "bf16", "minimum": true)"),
};

TEST(HardWeights, ZerosOfAllForms) {
  for (const std::string &form : kForms) {
    moert::Result<Inputs> inputs = makeInputs(form, "zero_weights");
    ASSERT_TRUE(inputs.status()) << inputs.status().message();
    for (double x : evaluate(*inputs, 2, 2))
      EXPECT_EQ(x, 0) << form;
    bool isZero = true;
    for (double x : evaluate(*inputs, 0, 1))
      isZero &= x == 0;
    EXPECT_FALSE(isZero) << form;
  }
}

TEST(HardWeights, LargestScalesHaveZeros) {
  for (const std::string &form : kForms) {
    moert::Result<Inputs> inputs = makeInputs(form, "scale_ends");
    ASSERT_TRUE(inputs.status()) << inputs.status().message();
    const HostTensor &scales = inputs->find("experts.w2_scale")->host;
    double largest = 0, least = INFINITY;
    for (int64_t i = 0; i < scales.getNumElements(); ++i) {
      largest = std::max(largest, getElement(scales, i));
      least = std::min(least, getElement(scales, i));
    }
    EXPECT_GT(largest, 1e4 * least) << form;
    for (double x : evaluate(*inputs, 0, 1))
      EXPECT_LT(std::fabs(x), 100) << form;
  }
}

TEST(HardWeights, NaNStandsInOneColumn) {
  for (const std::string &form : kForms) {
    moert::Result<Inputs> inputs = makeInputs(form, "nan_scales");
    ASSERT_TRUE(inputs.status()) << inputs.status().message();
    for (double x : evaluate(*inputs, 0, 1))
      EXPECT_TRUE(std::isfinite(x)) << form;
    std::vector<double> output = evaluate(*inputs, 0, 2);
    for (size_t i = 0; i < output.size(); ++i)
      EXPECT_EQ(std::isnan(output[i]), i == 32) << form << " " << i;
  }
}

TEST(HardWeights, CodesThatAreNaNStandInTwoColumns) {
  moert::Result<Inputs> inputs = makeInputs(kForms[6], "nan_codes");
  ASSERT_TRUE(inputs.status()) << inputs.status().message();
  for (double x : evaluate(*inputs, 0, 1))
    EXPECT_TRUE(std::isfinite(x));
  std::vector<double> output = evaluate(*inputs, 0, 2);
  for (size_t i = 0; i < output.size(); ++i)
    EXPECT_EQ(std::isnan(output[i]), i == 32 || i == 33) << i;
  EXPECT_FALSE(makeInputs(kForms[5], "nan_codes").status());
}

TEST(HardWeights, HiddenStatesMakeUpForLeastScales) {
  moert::Result<Inputs> inputs = makeInputs(kForms[0], "least_scales");
  ASSERT_TRUE(inputs.status()) << inputs.status().message();
  const HostTensor &scales = inputs->find("experts.w13_scale")->host;
  for (int64_t i = 0; i < scales.getNumElements(); ++i)
    EXPECT_EQ(scales.data()[i], 0);
  double sum = 0;
  for (double x : evaluate(*inputs, 0, 1))
    sum += x * x;
  EXPECT_GT(sum, 1e-4);
  EXPECT_LT(sum, 1e6);
  EXPECT_FALSE(makeInputs(kForms[0], "least_scales", "f16").status());
  EXPECT_FALSE(makeInputs(kForms[1], "least_scales").status());
}

TEST(HardWeights, ZeroPointsAreAtTheirEnds) {
  moert::Result<Inputs> inputs = makeInputs(kForms[3], "zero_point_ends");
  ASSERT_TRUE(inputs.status()) << inputs.status().message();
  const HostTensor &points = inputs->find("experts.w2_zero_point")->host;
  int64_t numLargest = 0, numLeast = 0;
  for (int64_t i = 0; i < points.getNumElements(); ++i) {
    numLargest += points.data()[i] == 255;
    numLeast += points.data()[i] == 0;
  }
  EXPECT_GT(numLargest, 0);
  EXPECT_GT(numLeast, 0);
  for (double x : evaluate(*inputs, 0, 1))
    EXPECT_LT(std::fabs(x), 100);
  EXPECT_FALSE(makeInputs(kForms[2], "zero_point_ends").status());
  EXPECT_FALSE(makeInputs(kForms[0], "ue8m0_scales").status());
}

TEST(HardWeights, ProductsThatAreNotQuantizedStayAsTheyAre) {
  const char *first = R"({"weight": "mxfp4", "w2": null})";
  const char *second = R"({"weight": "mxfp4", "w13": null})";
  for (const char *rule : {"zero_weights", "scale_ends"}) {
    moert::Result<Inputs> inputs = makeInputs(first, rule);
    ASSERT_TRUE(inputs.status()) << inputs.status().message();
    EXPECT_FALSE(inputs->find("experts.w2_scale"));
    for (double x : evaluate(*inputs, 0, 1))
      EXPECT_LT(std::fabs(x), 100);
  }
  EXPECT_FALSE(makeInputs(first, "nan_scales").status());
  EXPECT_FALSE(makeInputs(second, "least_scales").status());
  EXPECT_FALSE(makeInputs("null", "zero_weights").status());
}

} // namespace
