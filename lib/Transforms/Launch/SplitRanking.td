//===- SplitRanking.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitRankingRewrite : LaunchRewrite<"split-ranking"> {
  let summary = "let a launch count slots before they are ranked";
  let description = [{
    Puts a launch of a `tile.count_slots` in front of those of a `tile.rank` that have more than `most` slots, and
    gives the ranking its `counts`: CTAs that rank many slots then need not count all of them each. A variant
    whose token counts lie on both sides is split in two; if the ranking's kernel is launched with fewer slots
    too, those with more have a copy (`@permute_by_counts`). The counts (`permute_counts`, as the kernel that
    makes them) are one more buffer, in a slot of its own, and one more of the launches' `ins`. The chunks are
    those that the config of the ranking has; fewer tokens each where the launch before routes them, which can
    count them too (`fuse-routing`), unless that config is forced. The
    ranking's schedule has to read counts, and says whether that can pay (not of more experts than a chunk has
    slots). Behind the rewrites that look for rankings.

    `most`: the most slots that one launch ranks; 16384. `most-routed`: the same where the launch before routes
    their tokens; `most` where that is given or `fuse-routing` does not run, else 2048.
  }];
}
