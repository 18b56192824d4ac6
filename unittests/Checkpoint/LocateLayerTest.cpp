//===- LocateLayerTest.cpp - tests of finding a layer's tensors -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Checkpoint/LocateLayer.h"

#include "gtest/gtest.h"

#include <cstdio>

using namespace moec;
using Names = std::vector<std::string>;

namespace {

/// A checkpoint of empty tensors with these names.
moert::Checkpoint makeCheckpoint(const Names &names) {
  std::string path = ::testing::TempDir() + "moec_locate.safetensors";
  std::vector<moert::SafetensorsTensor> tensors;
  for (const std::string &name : names)
    tensors.push_back({name, moert::DType::F32, {0}, nullptr, 0});
  EXPECT_TRUE(moert::writeSafetensors(path, tensors));
  moert::Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(path);
  EXPECT_TRUE(checkpoint) << checkpoint.status().message();
  std::remove(path.c_str());
  return std::move(*checkpoint);
}

/// A tensor of the layer whose forms have parts of these names.
TensorInfo makeTensor(const std::string &name, std::vector<Names> forms,
                      TensorRole role = TensorRole::Weight) {
  TensorInfo info;
  info.name = name;
  info.role = role;
  for (const Names &parts : forms) {
    info.checkpointForms.emplace_back();
    for (const std::string &partName : parts) {
      CheckpointPart part;
      part.name = partName;
      part.numRows = 1;
      info.checkpointForms.back().push_back(std::move(part));
    }
  }
  return info;
}

/// Two experts with separate gate and up, a router, a shared expert.
LayerRequest makeRequest(std::optional<int64_t> layer = std::nullopt) {
  LayerRequest request;
  request.signature = {
      makeTensor("hidden_states", {}, TensorRole::Input),
      makeTensor("gate.weight", {{"gate.weight"}}),
      makeTensor("experts.w13",
                 {{"experts.{e}.gate", "experts.{e}.up"}, {"experts.gate_up"}}),
      makeTensor("shared_experts.w2", {{"shared.down"}}),
      makeTensor("output", {}, TensorRole::Output)};
  request.expertIds = {0, 1};
  request.numExperts = 2;
  request.layer = layer;
  return request;
}

Names addLayer(const std::string &prefix, Names names = {}) {
  for (const char *name : {"gate.weight", "experts.0.gate", "experts.0.up",
                           "experts.1.gate", "experts.1.up", "shared.down"})
    names.push_back(prefix + name);
  return names;
}

/// The names of the parts in their order, or the message.
Names locate(const Names &names, const LayerRequest &request) {
  moert::Checkpoint checkpoint = makeCheckpoint(names);
  moert::Result<LocatedLayer> layer = locateLayer(checkpoint, request);
  if (!layer) {
    std::string message = layer.status().message();
    EXPECT_EQ(message.rfind(checkpoint.path() + ": ", 0), 0u) << message;
    return {message.substr(checkpoint.path().size() + 2)};
  }
  Names found;
  for (const LocatedTensor &tensor : layer->tensors)
    for (const LocatedPart &part : tensor.parts)
      found.push_back(part.name);
  return found;
}

/// The tensors found of a layer that has all of them in one block.
Names getAll(const std::string &prefix) {
  return {prefix + "gate.weight",    prefix + "experts.0.gate",
          prefix + "experts.1.gate", prefix + "experts.0.up",
          prefix + "experts.1.up",   prefix + "shared.down"};
}

} // namespace

/// A rank gets its own experts in its own order, and the maximum of all
/// experts' scales. The checkpoint must also have the names of the other
/// experts.
TEST(LocateLayer, GivesARankItsExperts) {
  LayerRequest request = makeRequest(3);
  request.signature.push_back(
      makeTensor("experts.w13_input_scale", {{"experts.{e}.input"}}));
  request.signature.back().checkpointForms[0][0].use = PartUse::LargestScale;
  request.rank.emplace();
  for (const TensorInfo &info : request.signature) {
    TensorShard &shard = request.rank->shards.emplace_back();
    shard.whole = shard.local = info;
    if (info.name == "experts.w13")
      shard.experts = {1};
  }
  Names names = addLayer("layers.3.");
  names.push_back("layers.3.experts.1.input");
  EXPECT_EQ(locate(names, request),
            Names{"no tensor 'layers.3.experts.0.input' for "
                  "'experts.w13_input_scale'"});
  names.push_back("layers.3.experts.0.input");
  EXPECT_EQ(locate(names, request),
            (Names{"layers.3.gate.weight", "layers.3.experts.1.gate",
                   "layers.3.experts.1.up", "layers.3.shared.down",
                   "layers.3.experts.0.input", "layers.3.experts.1.input"}));
  moert::Checkpoint checkpoint = makeCheckpoint(names);
  auto located = locateLayer(checkpoint, request);
  ASSERT_TRUE(located);
  EXPECT_EQ(located->find("experts.w13")->parts.front().slot, 0);
  // A tensor of zeros has no values in the file.
  request.rank->shards.back().isZero = true;
  located = locateLayer(checkpoint, request);
  ASSERT_TRUE(located);
  EXPECT_TRUE(located->find("experts.w13_input_scale")->parts.empty());
  names.erase(names.begin() + 1);
  EXPECT_EQ(locate(names, request),
            Names{"no tensor 'layers.3.experts.0.gate' for 'experts.w13'"});
}

TEST(LocateLayer, TakesTheLayerThatIsAskedFor) {
  Names names = addLayer("model.layers.3.mlp.");
  names = addLayer("model.layers.13.mlp.", names);
  names = addLayer("model.layers.4.mlp.", names);
  EXPECT_EQ(locate(names, makeRequest(3)), getAll("model.layers.3.mlp."));
  EXPECT_EQ(locate(names, makeRequest(13)), getAll("model.layers.13.mlp."));
  EXPECT_EQ(locate(names, makeRequest(5)),
            Names{"has no experts of layer 5, but of layers 3, 4, 13; choose "
                  "one with --layer"});
  EXPECT_EQ(locate(names, makeRequest()),
            Names{"has experts of layers 3, 4, 13; choose one with --layer"});
  EXPECT_EQ(locate(addLayer("h.7."), makeRequest()), getAll("h.7."));
  EXPECT_EQ(locate(addLayer("h.7."), makeRequest(3)),
            Names{"has no experts of layer 3, but of layer 7; choose one with "
                  "--layer"});
}

TEST(LocateLayer, TakesALayerThatWasSavedByItself) {
  EXPECT_EQ(locate(addLayer(""), makeRequest(3)), getAll(""));
  EXPECT_EQ(locate(addLayer("mlp."), makeRequest(3)), getAll("mlp."));
  EXPECT_EQ(locate(addLayer("b.", addLayer("a.")), makeRequest(3)),
            Names{"the experts could be those of 'a.' or of 'b.'; give a file "
                  "with the tensors of one"});
}

/// Another part of a model never stands in for the decoder.
// field-bug: llm-compressor#2735, omlx#2326, vmlx#213, GPTQModel#2694
TEST(LocateLayer, TakesTheDecoderAlone) {
  auto refuse = [](const std::string &parts) {
    return Names{"has experts under " + parts +
                 " alone, which is no decoder: a draft model, multi-token "
                 "prediction, vision, speech or another part never stands in "
                 "for a decoder layer; give the files of the decoder, or let "
                 "its names begin with 'model.layers.'"};
  };
  for (auto [part, rest] : std::vector<std::pair<std::string, std::string>>{
           {"mtp.", "layers.0.mlp."},
           {"model.mtp.", "layers.0.mlp."},
           {"draft.", "layers.0.mlp."},
           {"eagle3.", "layers.0.mlp."},
           {"visual.", "blocks.0.mlp."},
           {"model.visual.", "blocks.0.mlp."},
           {"vision_model.", "encoder.layers.0.mlp."},
           {"audio_tower.", "layers.0.mlp."},
           {"talker.", "layers.0.mlp."},
           {"talker.", "model.layers.0.mlp."},
           {"code_predictor.", "model.layers.0.mlp."},
           {"someone.", "model.layers.0.mlp."}}) {
    Names names = addLayer(part + rest, addLayer("model.layers.0.mlp."));
    EXPECT_EQ(locate(names, makeRequest(0)), getAll("model.layers.0.mlp."));
    EXPECT_EQ(locate(addLayer(part + rest), makeRequest(0)),
              refuse("'" + part + "'"));
    // The requested layer is the decoder's, not the other part's.
    names = addLayer(part + rest, addLayer("model.layers.1.mlp."));
    EXPECT_EQ(locate(names, makeRequest(0)),
              Names{"has no experts of layer 0, but of layer 1; choose one "
                    "with --layer"});
  }
  EXPECT_EQ(locate(addLayer("mtp.layers.0.", addLayer("visual.blocks.1.")),
                   makeRequest(0)),
            refuse("'mtp.', 'visual.'"));
  for (const char *prefix :
       {"model.layers.0.mlp.", "layers.0.", "model.language_model.layers.0.",
        "language_model.model.layers.0.mlp.", "thinker.model.layers.0.mlp.",
        "transformer.h.0.", "transformer.decoder_layer.0.",
        "backbone.layers.0.mixer.", "language_model.backbone.layers.0.",
        "llm.model.layers.0.", "base_model.model.model.layers.0.mlp.",
        "module._orig_mod.model.layers.0.", "model.text_model.layers.0."})
    EXPECT_EQ(locate(addLayer(prefix), makeRequest(0)), getAll(prefix));
  Names names = addLayer("decoder.layers.0.", addLayer("encoder.layers.0."));
  EXPECT_EQ(locate(names, makeRequest(0)),
            Names{"the experts could be those of 'decoder.layers.0.' or of "
                  "'encoder.layers.0.'; give a file with the tensors of one"});
}

TEST(LocateLayer, ModulesMayStandSideBySide) {
  // The router beside the block, and another module's gate further away.
  Names names = {
      "layers.3.moe.inner.experts.0.gate", "layers.3.moe.inner.experts.0.up",
      "layers.3.moe.inner.experts.1.gate", "layers.3.moe.inner.experts.1.up",
      "layers.3.moe.gate.weight",          "layers.3.attention.gate.weight",
      "layers.3.mlp.shared.down",          "layers.4.mlp.shared.down"};
  EXPECT_EQ(
      locate(names, makeRequest(3)),
      (Names{"layers.3.moe.gate.weight", "layers.3.moe.inner.experts.0.gate",
             "layers.3.moe.inner.experts.1.gate",
             "layers.3.moe.inner.experts.0.up",
             "layers.3.moe.inner.experts.1.up", "layers.3.mlp.shared.down"}));
  names.push_back("layers.3.other.shared.down");
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{"'shared.down' could be those of 'layers.3.mlp.' or of "
                  "'layers.3.other.'; give a file with the tensors of one"});
}

TEST(LocateLayer, TakesTheFormThatIsWhole) {
  Names names = {"layers.3.gate.weight", "layers.3.experts.gate_up",
                 "layers.3.shared.down"};
  EXPECT_EQ(locate(names, makeRequest(3)), names);
}

TEST(LocateLayer, CanonicalNamesNeedNoForm) {
  Names names = {"hidden_states", "gate.weight", "experts.w13",
                 "shared_experts.w2"};
  LayerRequest request = makeRequest(3);
  EXPECT_EQ(locate(names, request), names);
  // IR has no forms.
  request.expertIds.clear();
  EXPECT_EQ(locate(names, request), names);
  EXPECT_EQ(locate(addLayer("mlp."), request),
            Names{"no tensor for 'gate.weight'; accepted names: "
                  "'gate.weight'"});
}

/// The message about a missing tensor lists the tensors that exist instead.
// field-bug: sglang#37679, mlxcel#620, bitsandbytes#1849, unsloth#4032,
// tinker-cookbook#587
TEST(LocateLayer, NamesWhatIsThereInstead) {
  const std::string accepted =
      "no tensor for 'experts.w13'; accepted names: 'experts.w13', "
      "'*.experts.{e}.gate', '*.experts.{e}.up', '*.experts.gate_up'";
  Names names = {"layers.3.mlp.gate.weight", "layers.3.mlp.shared.down",
                 "layers.3.mlp.switch_mlp.down", "layers.3.mlp.switch_mlp.gate",
                 "layers.3.attention.q"};
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{accepted +
                  "; the file has 'layers.3.mlp.switch_mlp.down', "
                  "'layers.3.mlp.switch_mlp.gate', which the layer does not "
                  "take"});
  // Quantized experts of which one was left unquantized.
  names = addLayer("layers.3.mlp.");
  for (std::string &name : names)
    if (llvm::StringRef(name).contains("experts.1"))
      name += "_packed";
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{"no tensor 'layers.3.mlp.experts.1.gate' (and 1 more) for "
                  "'experts.w13'; the file has "
                  "'layers.3.mlp.experts.1.gate_packed', "
                  "'layers.3.mlp.experts.1.up_packed', which the layer does "
                  "not take"});
  // No tensor has a known name.
  names = {"h.3.experts.a", "h.3.experts.b", "h.3.experts.c", "h.3.experts.d",
           "h.4.experts.a"};
  LayerRequest request = makeRequest(3);
  llvm::erase_if(request.signature, [](const TensorInfo &tensor) {
    return tensor.name == "gate.weight";
  });
  EXPECT_EQ(locate(names, request),
            Names{accepted + "; the file has 'h.3.experts.a', "
                             "'h.3.experts.b', 'h.3.experts.c' and 1 more, "
                             "which the layer does not take"});
}

TEST(LocateLayer, NamesOfAllExpertsHaveNoWeight) {
  LayerRequest request = makeRequest(3);
  std::string hint = "; without '.weight' the first name is an accepted one";
  auto ends = [&](const char *name) {
    std::string message =
        locate({"model.layers.3.mlp.gate.weight", name}, request).front();
    return llvm::StringRef(message).ends_with(
        std::string("'") + name + "', which the layer does not take" + hint);
  };
  EXPECT_TRUE(ends("model.layers.3.mlp.experts.gate_up.weight"));
  EXPECT_FALSE(ends("model.layers.3.mlp.experts.gate_up_all.weight"));
}

TEST(LocateLayer, NamesWhatIsMissing) {
  Names names = addLayer("layers.3.");
  llvm::erase(names, "layers.3.experts.0.up");
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{"no tensor 'layers.3.experts.0.up' for 'experts.w13'"});
  llvm::erase(names, "layers.3.experts.1.up");
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{"no tensor 'layers.3.experts.0.up' (and 1 more) for "
                  "'experts.w13'"});
  llvm::erase(names, "layers.3.shared.down");
  names.push_back("layers.3.experts.0.up");
  names.push_back("layers.3.experts.1.up");
  EXPECT_EQ(locate(names, makeRequest(3)),
            Names{"no tensor for 'shared_experts.w2'; accepted names: "
                  "'shared_experts.w2', '*.shared.down'"});
}

TEST(LocateLayer, LeavesNothingOutInSilence) {
  auto isRefused = [](const std::string &extra, LayerRequest request) {
    Names names = addLayer("layers.3.mlp.");
    names.push_back(extra);
    Names found = locate(names, request);
    return found.size() == 1 &&
           found[0].find("'" + extra + "' is none of this layer's") !=
               std::string::npos;
  };
  for (const char *name :
       {"layers.3.mlp.gate.bias", "layers.3.mlp.experts.2.gate",
        "layers.3.other.experts.0.scale", "layers.3.router.x", "experts.w2",
        "input_ids"})
    EXPECT_TRUE(isRefused(name, makeRequest(3))) << name;
  for (const char *name : {"layers.3.attention.q", "layers.4.mlp.gate.bias",
                           "layers.30.mlp.experts.0.scale", "lm_head"})
    EXPECT_FALSE(isRefused(name, makeRequest(3))) << name;

  // Experts that are somewhere else.
  LayerRequest fewer = makeRequest(3);
  fewer.numExperts = 3;
  EXPECT_FALSE(isRefused("layers.3.mlp.experts.2.gate", fewer));
  EXPECT_TRUE(isRefused("layers.3.mlp.experts.3.gate", fewer));

  // A router that the layer does not need.
  LayerRequest routed = makeRequest(3);
  routed.signature[1] = makeTensor("topk_ids", {}, TensorRole::Input);
  EXPECT_FALSE(isRefused("layers.3.mlp.gate.bias", routed));
  EXPECT_TRUE(isRefused("layers.3.mlp.experts.0.bias", routed));
}

TEST(LocateLayer, ModulesInTheTablesNames) {
  // If the table names modules of the decoder layer, other modules of that
  // layer do not belong to the experts.
  LayerRequest request;
  request.signature = {makeTensor("experts.w2", {{"moe.output.weight"}}),
                       makeTensor("shared_experts.w2", {{"shared.weight"}})};
  request.expertIds = {0};
  request.numExperts = 1;
  Names names = {"h.1.attention.x", "h.1.moe.output.weight",
                 "h.1.shared.weight"};
  EXPECT_EQ(locate(names, request),
            (Names{"h.1.moe.output.weight", "h.1.shared.weight"}));
  names.push_back("h.1.moe.bias");
  EXPECT_EQ(locate(names, request).front().rfind("tensor 'h.1.moe.bias'", 0),
            0u);
}

/// Physical experts are copies; no checkpoint has their tables.
TEST(LocateLayer, ReplicasAreCopies) {
  LayerRequest request = makeRequest();
  request.expertIds = {0, 1, 0};
  for (const char *name : {"replicas.physical_ids", "replicas.counts"})
    request.signature.push_back(makeTensor(name, {}));
  const Names copies = {"gate.weight",    "experts.0.gate", "experts.1.gate",
                        "experts.0.gate", "experts.0.up",   "experts.1.up",
                        "experts.0.up",   "shared.down"};
  EXPECT_EQ(locate(addLayer(""), request), copies);
  EXPECT_EQ(locate({"gate.weight", "experts.w13", "shared_experts.w2",
                    "hidden_states", "replicas.counts"},
                   request),
            (Names{"hidden_states", "gate.weight", "experts.w13",
                   "shared_experts.w2", "replicas.counts"}));
}
