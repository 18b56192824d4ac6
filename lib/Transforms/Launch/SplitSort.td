//===- SplitSort.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitSortRewrite : LaunchRewrite<"split-sort"> {
  let summary = "count slots in a launch before their sort";
  let description = [{
    Puts a launch of a `tile.count_slots` before launches of a `tile.sort_by_expert` with so many slots that both together are
    predicted to take less time, and gives the sort its `counts`: the CTAs of a large sort then need not count all
    slots each. A variant whose token counts lie on both sides is split in two, at a power of two, if the saving
    exceeds the penalty of the kernels. If the sort's kernel is launched with fewer slots too, launches with more get
    a copy of it (`@permute_by_counts`). The counts (`permute_counts`, like the kernel that makes them) are one more
    buffer, in its own slot, and one more of the launches' `ins`. Chunks are those of the sort's config, or have fewer
    tokens if the launch before routes these, and so can count them too (`fuse-routing`), unless that config is
    forced. The sort's schedule must support counts and decides whether they can pay (not with more experts than a
    chunk has slots). Runs after the rewrites that look for sorts.

    `most`: the most slots that one launch sorts, regardless of the prediction. `most-routed`: the same limit if the
    launch before routes their tokens; `most` if only that is given. Without a cost model 16384, and 2048 if the
    launch before routes their tokens and `fuse-routing` runs.
  }];
}
