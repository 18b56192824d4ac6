//===- DynamicScheduler.td - a rewrite of launches ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def DynamicSchedulerRewrite : LaunchRewrite<"dynamic-scheduler"> {
  let summary = "schedule tiles of gemms dynamically";
  let description = [{
    Gives gemms whose `config` has `dynamic_scheduler` their `tile_counter`: a counter that the `tile.sort_by_expert` of their offsets sets to 0.
    The counter is one more of the `outs` of the launches of the sort and of the gemms, in its own slot, shared by all
    gemms of a run. `dynamic_scheduler` is removed from the `config` if no such sort precedes on the same stream, if a fixed tile
    order is predicted to be no slower, or if this rewrite is disabled; BLOCK_M then suits a fixed order. The
    prediction does not apply to configs that are forced or without `load`. Runs after `join-products`, whose kernels
    have a fixed order.
  }];
}
