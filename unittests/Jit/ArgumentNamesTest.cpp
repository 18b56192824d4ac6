//===- ArgumentNamesTest.cpp - tests of names in messages -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../lib/Jit/ArgumentNames.h"

#include "gtest/gtest.h"

using namespace moec::capi;

namespace {

TEST(ArgumentNames, AreThoseOfC) {
  const std::pair<const char *, const char *> cases[] = {
      {"--max-tokens=8: too few", "moejit_source.max_tokens = 8: too few"},
      {"raise --max-tokens.", "raise moejit_source.max_tokens."},
      {"--layer=-1; layers", "moejit_source.layer = -1; layers"},
      {"(--part=vision)", "(moejit_source.part = \"vision\")"},
      {"--ignore-field=text_config.a",
       "moejit_source.ignored_fields = {\"text_config.a\"}"},
      {"--ignore-field=a.b.", "moejit_source.ignored_fields = {\"a.b\"}."},
      {"--ignore-field='a b*': c",
       "moejit_source.ignored_fields = {\"a b*\"}: c"},
      {"--ignore-field='a'\\''b'", "moejit_source.ignored_fields = {\"a'b\"}"},
      {"by --round-weights, or", "by moejit_source.round_weights = 1, or"},
      {"as in --target=sm_90a", "as in moejit_options.target = \"sm_90a\""},
      {"--explain=all prints", "MOEJIT_FULL_EXPLANATION prints"},
      {"(--inputs=model.gguf)", "(moejit_layer_load_weights())"},
  };
  for (auto [message, expected] : cases)
    EXPECT_EQ(nameForC(message), expected);
  EXPECT_EQ(nameForC("choose one with --layer", LayerArgument::DecoderLayer),
            "choose one with decoder_layer");
}

TEST(ArgumentNames, OtherWordsStay) {
  for (const char *message :
       {"", "--layers=all", "--max-tokens-of", "no--layer", "'--layer'",
        "\"--layer\": 3", "--disable=join-products", "---layer", "--"})
    EXPECT_EQ(nameForC(message), message);
}

} // namespace
