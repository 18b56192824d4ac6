//===- TensorPlaceTest.cpp - tests of prefixes taken apart ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Checkpoint/TensorPlace.h"

#include "gtest/gtest.h"

using namespace moec;

static void expectPlace(const char *prefix, const char *scope,
                        std::optional<int64_t> layer) {
  TensorPlace place(prefix);
  EXPECT_EQ(place.prefix, prefix);
  EXPECT_EQ(place.scope, scope) << prefix;
  EXPECT_EQ(place.layer, layer) << prefix;
}

TEST(TensorPlace, FindsTheNumberOfTheLayer) {
  expectPlace("model.layers.3.mlp.", "model.layers.3.", 3);
  expectPlace("transformer.h.12.", "transformer.h.12.", 12);
  expectPlace("blocks.0.ffn.", "blocks.0.", 0);
  // Lists inside a layer, and around the list of layers.
  expectPlace("decoder.block.5.layer.2.mlp.", "decoder.block.5.", 5);
  expectPlace("stages.1.layers.7.mlp.", "stages.1.layers.7.", 7);
  expectPlace("experts_of.4.mlp.", "experts_of.4.", 4);
  expectPlace("mlp.", "", std::nullopt);
  expectPlace("", "", std::nullopt);
  expectPlace("layers.x.mlp.", "", std::nullopt);
  expectPlace("layers.99999999999999999999.", "", std::nullopt);
}

TEST(TensorPlace, KnowsPartsThatAreNoDecoder) {
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
    EXPECT_EQ(TensorPlace(prefix).otherPart, part) << prefix;
}

TEST(TensorPlace, CountsWholeModules) {
  EXPECT_EQ(countCommonModules("a.b.c.", "a.b.d."), 2u);
  EXPECT_EQ(countCommonModules("a.bc.", "a.bd."), 1u);
  EXPECT_EQ(countCommonModules("", "a."), 0u);
}
