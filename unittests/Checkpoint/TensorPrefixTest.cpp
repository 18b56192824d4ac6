//===- TensorPrefixTest.cpp - tests of prefixes taken apart -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint/TensorPrefix.h"

#include "gtest/gtest.h"

using namespace moec;

static void expectPrefix(const char *prefix, const char *scope,
                         std::optional<int64_t> layer) {
  TensorPrefix candidate(prefix);
  EXPECT_EQ(candidate.prefix, prefix);
  EXPECT_EQ(candidate.scope, scope) << prefix;
  EXPECT_EQ(candidate.layer, layer) << prefix;
}

TEST(TensorPrefix, FindsTheNumberOfTheLayer) {
  expectPrefix("model.layers.3.mlp.", "model.layers.3.", 3);
  expectPrefix("transformer.h.12.", "transformer.h.12.", 12);
  expectPrefix("blocks.0.ffn.", "blocks.0.", 0);
  // Lists inside a layer, and around the list of layers.
  expectPrefix("decoder.block.5.layer.2.mlp.", "decoder.block.5.", 5);
  expectPrefix("stages.1.layers.7.mlp.", "stages.1.layers.7.", 7);
  expectPrefix("experts_of.4.mlp.", "experts_of.4.", 4);
  expectPrefix("mlp.", "", std::nullopt);
  expectPrefix("", "", std::nullopt);
  expectPrefix("layers.x.mlp.", "", std::nullopt);
  expectPrefix("layers.99999999999999999999.", "", std::nullopt);
}

TEST(TensorPrefix, KnowsPartsThatAreNoDecoder) {
  for (auto [prefix, part] : {std::pair("mtp.layers.0.mlp.", "mtp."),
                              {"model.mtp_block.0.", "model.mtp_block."},
                              {"model.visual.blocks.3.", "model.visual."},
                              {"vision_tower.layers.1.", "vision_tower."},
                              {"talker.model.layers.2.mlp.", "talker."},
                              {"layers.3.vision_moe.", "layers.3.vision_moe."},
                              {"unknown.layers.1.", "unknown."},
                              {"model.layers.0.mlp.", ""},
                              {"thinker.model.layers.2.mlp.", ""},
                              {"model.language_model.layers.1.", ""},
                              {"layers.3.mlp.inner.", ""},
                              {"stages.1.layers.7.mlp.", ""},
                              {"experts_of.4.mlp.", ""},
                              {"mlp.", ""},
                              {"", ""}})
    EXPECT_EQ(TensorPrefix(prefix).otherPart, part) << prefix;
}

TEST(TensorPrefix, CountsWholeModules) {
  EXPECT_EQ(countCommonModules("a.b.c.", "a.b.d."), 2u);
  EXPECT_EQ(countCommonModules("a.bc.", "a.bd."), 1u);
  EXPECT_EQ(countCommonModules("", "a."), 0u);
}
