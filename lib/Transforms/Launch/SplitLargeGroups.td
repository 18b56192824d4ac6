//===- SplitLargeGroups.td - a rewrite of launches ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitLargeGroupsRewrite : LaunchRewrite<"split-large-groups"> {
  let summary = "a launch of their own for groups with many rows";
  let description = [{
    A config that suits experts which are about equally likely may have low tiles; where most tokens go to a few
    experts, those want high ones. Each launch of such a grouped product gets one behind it, of a copy of its
    kernel (`@experts_hidden_large_groups_t8192`), for the groups with the `min` of its `group_rows` or more, and keeps the others
    (`max`). The product's schedule says from how many rows on, and in which config. Where that is
    expected to take less time, and a launch that finds no such group takes little beside the product at the fewest
    tokens of its `load`. Both launches write rows of one result. A product whose config is forced keeps all groups,
    unless one is forced under the name of the copy, with the range or without; then it is split in any case.
  }];
}
