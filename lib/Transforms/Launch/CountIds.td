//===- CountIds.td - a rewrite of launches -----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def CountIdsRewrite : LaunchRewrite<"count-ids"> {
  let summary = "count ids in gemms instead of reading offsets";
  let description = [{
    Gives grouped gemms `ids`, from which they compute their groups, so that they can copy weights before earlier
    launches have ended. Requires a schedule that supports it, and that in all launches of the gemm the offsets come
    from a `tile.sort_by_expert` over these ids, which are an input of the caller that no launch writes, without
    `num_valid_tokens`. The ids become one more of the launches' `ins`. A gemm with a `min` in its `group_rows` gets
    none, since it mostly has nothing to copy early. Applied if predicted to save time, as each CTA reads all ids.

    `most`: apply up to this many ids, at the highest token count of a variant, regardless of the prediction.
  }];
}
