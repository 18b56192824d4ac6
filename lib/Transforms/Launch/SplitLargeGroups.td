//===- SplitLargeGroups.td - a rewrite of launches ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitLargeGroupsRewrite : LaunchRewrite<"split-large-groups"> {
  let summary = "a separate launch for groups with many rows";
  let description = [{
    A config for about equally likely experts may have a small BLOCK_M, while a few experts that get most tokens want
    a large one. After each launch of such a grouped gemm comes a launch of a copy of its kernel
    (`@experts_hidden_large_groups_t8192`) for groups with at least `min` rows (`group_rows`); the first launch keeps
    the other groups (`max`). The gemm's schedule chooses the threshold and the config. Applied if predicted to save
    time, and if a launch that finds no such group takes little beside the gemm at the fewest tokens of its `load`.
    Both launches write rows of one result. A gemm with a forced config keeps all groups, unless a config is forced
    under the name of the copy, with or without the range; then it is always split.
  }];
}
