//===- SplitRanking.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitRankingRewrite : LaunchRewrite<"split-ranking"> {
  let summary = "let a launch count slots before they are ranked";
  let description = [{
    Puts a launch of a `tile.count_slots` in front of those of a `tile.rank` that have so many slots that both together
    are expected to take less time, and
    gives the ranking its `counts`: CTAs that rank many slots then need not count all of them each. A variant
    whose token counts lie on both sides is split in two, at a power of two, if what is saved is worth the kernels; if the ranking's kernel is launched with fewer slots
    too, those with more have a copy (`@permute_by_counts`). The counts (`permute_counts`, as the kernel that
    makes them) are one more buffer, in a slot of its own, and one more of the launches' `ins`. The chunks are
    those that the config of the ranking has; fewer tokens each where the launch before routes them, which can
    count them too (`fuse-routing`), unless that config is forced. The
    ranking's schedule has to read counts, and says whether that can pay (not of more experts than a chunk has
    slots). Behind the rewrites that look for rankings.

    `most`: the most slots that one launch ranks, whatever it takes. `most-routed`: the same where the launch before routes
    their tokens; `most` if that alone is given. Where nothing is known of times 16384, and 2048 where the launch before
    routes their tokens and `fuse-routing` runs.
  }];
}
