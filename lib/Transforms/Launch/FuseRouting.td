//===- FuseRouting.td - a rewrite of launches --------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def FuseRoutingRewrite : LaunchRewrite<"fuse-routing"> {
  let summary = "let the launch that routes tokens count or rank their slots";
  let description = [{
    Makes a launch of a `tile.top_k` and the one behind it one launch, of a kernel with both phases
    (`@route_0_route_1`), if a CTA needs just its own share of the first for its share of the second, which the
    second one's schedule says: where that is a `tile.count_slots`, each CTA counts the slots of the tokens that it
    routes; where it is a `tile.rank` of up to `most` slots, and of 32 tokens, one CTA does both. A variant whose
    token counts lie on both sides of that is split in two; such a kernel has a `load` that says so. The phases get
    configs that agree (docs/gpu.md). A phase whose config is forced stays alone.

    `most`: the most slots that a CTA ranks whose tokens it routes; 256.
  }];
}
