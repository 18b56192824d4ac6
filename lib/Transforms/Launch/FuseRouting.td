//===- FuseRouting.td - a rewrite of launches --------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def FuseRoutingRewrite : LaunchRewrite<"fuse-routing"> {
  let summary = "count or sort slots in the launch that routes their tokens";
  let description = [{
    Fuses a launch of a `tile.top_k` with the next launch, into a kernel with both phases (`@route_0_route_1`), if by
    the second phase's schedule a CTA needs only its own share of the first phase. For a `tile.count_slots`, each CTA
    counts the slots of the tokens that it routes. For a `tile.sort_by_expert` of up to `most` slots and 32 tokens, one CTA does
    both. A variant whose token counts lie on both sides of that limit is split in two; such a kernel has a `load`.
    The phases get configs that agree (docs/design/lowering-to-gpu.md). A phase with a forced config is not fused.

    `most`: the most slots that one CTA sorts together with routing; default 256.
  }];
}
