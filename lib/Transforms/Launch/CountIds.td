//===- CountIds.td - a rewrite of launches -----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def CountIdsRewrite : LaunchRewrite<"count-ids"> {
  let summary = "let products count ids instead of reading offsets";
  let description = [{
    Gives grouped products `ids`, so that they know their groups and can copy weights before the launches
    before them have ended: a product's schedule has to emit that, and in all of its launches its offsets
    come from a `tile.rank` over the same ids, which are an input of the caller's that no launch writes,
    without `num_valid_tokens`. The launches get the ids as one more of their `ins`. A product of groups with
    a `min` in its `group_rows` gets none: mostly it has nothing to copy early. Where that is expected to take less
    time: each CTA reads all ids.

    `most`: so many ids there may be, at the highest token count of a variant, whatever it takes.
  }];
}
