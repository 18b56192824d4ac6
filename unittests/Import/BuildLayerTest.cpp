//===- BuildLayerTest.cpp - IR of a layer -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/BuildLayer.h"

#include "ImportTesting.h"
#include "moec/Dialect/Moe/Moe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace moec;
using namespace moec::testing;

namespace {

/// Compares the spellings of an enum of the spec with those of the dialect.
template <typename DialectEnum, typename E>
void expectSpellings(unsigned maxValue) {
  ASSERT_EQ(getEnumNames<E>().size(), maxValue + 1);
  for (const EnumName<E> &each : getEnumNames<E>())
    EXPECT_EQ(stringifyEnum(DialectEnum(each.value)), each.name);
}

TEST(BuildLayerTest, EnumsOfTheSpecAreThoseOfTheDialect) {
  expectSpellings<moe::GateUpOrder, GateUpOrder>(
      moe::getMaxEnumValForGateUpOrder());
  expectSpellings<moe::Select, Select>(moe::getMaxEnumValForSelect());
  expectSpellings<moe::GroupScore, GroupScore>(
      moe::getMaxEnumValForGroupScore());
  expectSpellings<moe::NonFinite, NonFinite>(moe::getMaxEnumValForNonFinite());
  expectSpellings<moe::Granularity, Granularity>(
      moe::getMaxEnumValForGranularity());
}

struct Built {
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  moe::LayerOp layer;

  explicit Built(std::string text) {
    LayerSpec spec = importOk(std::move(text));
    module = buildLayer(context, spec);
    EXPECT_TRUE(module);
    if (module)
      module->walk([&](moe::LayerOp op) { layer = op; });
    EXPECT_TRUE(layer);
  }

  /// The names of the ops in a region.
  static std::vector<std::string> getOps(Region &region) {
    std::vector<std::string> names;
    region.walk([&](Operation *op) {
      names.push_back(op->getName().getStringRef().str());
    });
    return names;
  }
};

TEST(BuildLayer, FunctionHasTheSignature) {
  Built built(makeSpec(R"("name": "my-layer")"));
  auto func = built.layer->getParentOfType<func::FuncOp>();
  EXPECT_EQ(func.getName(), "my-layer");
  ASSERT_EQ(func.getNumArguments(), 4u);
  EXPECT_EQ(func.getArgAttrOfType<StringAttr>(0, "moe.name"), "hidden_states");
  EXPECT_EQ(func.getArgAttrOfType<StringAttr>(0, "moe.role"), "input");
  EXPECT_EQ(func.getArgAttrOfType<StringAttr>(1, "moe.name"), "gate.weight");
  EXPECT_EQ(func.getArgAttrOfType<StringAttr>(1, "moe.role"), "weight");
  EXPECT_EQ(func.getResultAttrOfType<StringAttr>(0, "moe.name"), "output");
  EXPECT_EQ(built.layer.getHidden(), func.getArgument(0));
  EXPECT_EQ(built.layer.getGateWeight(), func.getArgument(1));
  EXPECT_EQ(built.layer.getW13(), func.getArgument(2));
  EXPECT_EQ(built.layer.getW2(), func.getArgument(3));
}

TEST(BuildLayer, MatricesOfWeightsMayBeStrided) {
  auto count = [](const char *fields) {
    Built built(makeSpec(fields));
    auto func = built.layer->getParentOfType<func::FuncOp>();
    std::vector<std::string> strided;
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (func.getArgAttr(i, "moe.strided"))
        strided.push_back(
            func.getArgAttrOfType<StringAttr>(i, "moe.name").str());
    return strided;
  };
  EXPECT_TRUE(count("").empty());
  EXPECT_EQ(
      count(R"("strided_weights": true, "expert_bias": true,
               "latent_size": 16,
               "shared_experts": {"intermediate_size": 8, "gate": "sigmoid"})"),
      (std::vector<std::string>{"gate.weight", "experts.w13", "experts.w2",
                                "shared_experts.w13", "shared_experts.w2",
                                "latent.down", "latent.up"}));
}

TEST(BuildLayer, ScoreAndWeightBecomeRegionsOrAttributes) {
  auto build = [](const char *routing) {
    return std::make_unique<Built>(
        makeSpec(std::string("\"routing\": ") + routing));
  };
  auto softmax = build(R"({"score": "softmax"})");
  EXPECT_TRUE(softmax->layer.getScore().empty());
  EXPECT_TRUE(softmax->layer.getWeight().empty());
  EXPECT_EQ(softmax->layer.getRouting()->getSoftmax(), moe::Softmax::All);
  auto sigmoid = build(R"({"score": "sigmoid"})");
  EXPECT_EQ(Built::getOps(sigmoid->layer.getScore()),
            (std::vector<std::string>{
                "arith.constant", "arith.cmpf", "arith.negf", "arith.select",
                "math.exp", "arith.constant", "arith.addf", "arith.divf",
                "arith.select", "moe.yield"}));
  EXPECT_EQ(sigmoid->layer.getRouting()->getSoftmax(), moe::Softmax::None);
  auto sqrtSoftplus = build(R"({"score": "sqrtsoftplus"})");
  EXPECT_EQ(Built::getOps(sqrtSoftplus->layer.getScore()).size(), 7u);
  EXPECT_EQ(sqrtSoftplus->layer.getRouting()->getNonfinite(),
            moe::NonFinite::Lowest);
  auto llama = build(R"({"score": "identity", "weight": "sigmoid"})");
  EXPECT_TRUE(llama->layer.getScore().empty());
  EXPECT_FALSE(llama->layer.getWeight().empty());
  auto oss = build(R"({"score": "identity", "weight": "softmax"})");
  EXPECT_TRUE(oss->layer.getWeight().empty());
  EXPECT_EQ(oss->layer.getRouting()->getSoftmax(), moe::Softmax::Selected);
}

TEST(BuildLayer, RoutingAttribute) {
  Built built(makeSpec(
      R"("routing": {"score": "sigmoid", "num_groups": 4, "topk_groups": 2,
         "selection_bias": true, "renormalize": true,
         "renormalize_epsilon": 1e-20, "scale": 2.5})"));
  moe::RoutingAttr routing = *built.layer.getRouting();
  EXPECT_EQ(routing.getTopK(), 2);
  EXPECT_EQ(routing.getNumGroups(), 4);
  EXPECT_EQ(routing.getTopkGroups(), 2);
  EXPECT_EQ(routing.getGroupScore(), moe::GroupScore::Top2Sum);
  EXPECT_TRUE(routing.getRenormalize());
  EXPECT_FLOAT_EQ(routing.getEpsilonValue(), 1e-20f);
  EXPECT_EQ(routing.getScaleValue(), 2.5);
  EXPECT_EQ(routing.getNonfinite(), moe::NonFinite::NegInf);
}

TEST(BuildLayer, EverySelection) {
  auto select = [](const char *routing) {
    Built built(makeSpec(std::string("\"routing\": ") + routing));
    return built.layer.getRouting()->getSelect();
  };
  EXPECT_EQ(select(R"({"select": "top_k"})"), moe::Select::TopK);
  EXPECT_EQ(select(R"({"select": "per_group", "num_groups": 2})"),
            moe::Select::PerGroup);
  EXPECT_EQ(select(R"({"select": "hash", "hash_vocab_size": 10})"),
            moe::Select::Hash);
  EXPECT_EQ(select(R"({"select": "sparsemixer", "score": "identity"})"),
            moe::Select::SparseMixer);
}

TEST(BuildLayer, EveryActivationBuildsAndReadsItsParameters) {
  for (const auto &entry : getEnumNames<Activation>()) {
    Built built(
        makeSpec("\"activation\": {\"kind\": \"" + entry.name.str() + "\"}"));
    EXPECT_EQ(built.layer.isGated(), isGated(entry.value));
    EXPECT_EQ(built.layer.getLayout().has_value(), isGated(entry.value));
    llvm::StringSet<> read;
    built.layer.getActivation().walk(
        [&](moe::ParamOp op) { read.insert(op.getName()); });
    unsigned written = 0;
    if (auto params = built.layer.getActivationParams())
      for (NamedAttribute param : *params) {
        EXPECT_TRUE(read.contains(param.getName().strref()))
            << entry.name.str();
        ++written;
      }
    EXPECT_EQ(read.size(), written) << entry.name.str();
  }
}

TEST(BuildLayer, ALinearUpOfSituIsNoParameter) {
  Built built(makeSpec(R"("activation": {"kind": "situ", "linear_beta": 0})"));
  EXPECT_FALSE(built.layer.getActivationParams()->contains("linear_beta"));
}

TEST(BuildLayer, EverythingElse) {
  Built built(makeSpec(
      R"("num_zero_experts": 3, "latent_size": 16, "max_tokens": 99,
         "num_valid_tokens": true, "expert_bias": true,
         "gate_up_order": "interleaved",
         "routing": {"expert_scale": true, "gate_bias": true},
         "shared_experts": {"intermediate_size": 8, "gate": "sigmoid"},
         "placement": {"local_experts": [5, 2]})"));
  moe::LayerOp layer = built.layer;
  EXPECT_EQ(layer.getNumZeroExperts(), 3u);
  EXPECT_EQ(layer.getMaxTokens(), 99u);
  EXPECT_TRUE(layer.getNumValidTokens());
  EXPECT_TRUE(layer.getW13Bias());
  EXPECT_TRUE(layer.getW2Bias());
  EXPECT_TRUE(layer.getGateBias());
  EXPECT_TRUE(layer.getExpertScale());
  EXPECT_TRUE(layer.getSharedW13());
  EXPECT_TRUE(layer.getSharedW2());
  EXPECT_TRUE(layer.getSharedGate());
  EXPECT_TRUE(layer.getLatentDown());
  EXPECT_TRUE(layer.getLatentUp());
  EXPECT_EQ(layer.getLayout()->getOrder(), moe::GateUpOrder::Interleaved);
  EXPECT_EQ(layer.getPlacement()->getNumExperts(), 8);
  EXPECT_EQ(layer.getPlacement()->getLocal(), (ArrayRef<int64_t>{5, 2}));
}

TEST(BuildLayer, EntryIds) {
  Built built(R"({"moec_spec": 1, "dtype": "f16", "entry": "ids",
      "hidden_size": 8, "num_experts": 4, "top_k": 1, "intermediate_size": 8,
      "routing": {"weight_on_input": true}, "activation": {"kind": "gelu"}})");
  EXPECT_FALSE(built.layer.getRouting());
  EXPECT_TRUE(built.layer.getTopkIds());
  EXPECT_TRUE(built.layer.getTopkWeights());
  EXPECT_FALSE(built.layer.getGateWeight());
  EXPECT_TRUE(built.layer.getWeightOnInput());
}

} // namespace
