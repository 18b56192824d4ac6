//===- JoinProducts.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def JoinProductsRewrite : LaunchRewrite<"join-products"> {
  let summary = "let two products be one kernel";
  let description = [{
    Makes one `resident` kernel and launch of two grouped products that follow each other, the second on the
    results of the first and with the same offsets: weights of the second arrive while the last tiles of the
    first are multiplied, and there is one launch less. Their schedule chooses configs that go together; where these
    are expected to take less time than two launches do. The first `signals` and the second
    `awaits`, by a counter that the `tile.rank` before them sets to 0 (one more of its launches' `outs`, in a
    slot of its own). What the first reads gets a slot of its own too, if the second would write there.
    Where that is so of one or two tokens, but not of all that the variant is for, the variant is cut there.
    Where `permute-rows` has brought the first one's rows into order, both stay apart: such rows are for tensor
    maps, which the first one of a kernel has none of; so do products of some groups alone (`split-large-groups`). Products
    whose configs are forced keep them, and are joined if they can be.
  }];
}
