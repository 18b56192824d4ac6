//===- JoinProducts.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def JoinProductsRewrite : LaunchRewrite<"join-products"> {
  let summary = "join two gemms into one kernel";
  let description = [{
    Joins two consecutive grouped gemms, the second on the results of the first and with the same offsets, into one
    `resident` kernel and launch: weights of the second arrive while the last tiles of the first are multiplied, and
    there is one launch less. Their schedule chooses configs that fit together; applied if these are predicted to take
    less time than two launches. The first gemm `signals` and the second `awaits`, by a counter that the `tile.sort_by_expert`
    before them sets to 0 (one more of its launches' `outs`, in its own slot). The inputs of the first also get their
    own slots if the second would overwrite them. If joining pays only for one or two tokens of a variant, the variant
    is split there.

    Gemms stay separate if `permute-rows` has permuted the first one's rows, since these are for tensor maps, which
    the first of joined gemms does not use, or if they compute only some groups (`split-large-groups`). Gemms with
    forced configs keep them, and are joined if possible.

    `most`: the tokens up to which gemms are joined whatever the predicted time; a variant is split there. Gemms of
    block fp8 are joined with this parameter alone.
  }];
}
