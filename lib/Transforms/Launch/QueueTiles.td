//===- QueueTiles.td - a rewrite of launches ---------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QueueTilesRewrite : LaunchRewrite<"queue-tiles"> {
  let summary = "give products a counter of the tiles to take next";
  let description = [{
    Gives products whose `config` says `queue` their `tickets`: a counter that the `tile.rank` that writes
    their offsets sets to 0 (one more of its launches' `outs`, in a slot of its own, the same for all
    products of a run), as one more of the `outs` of their launches. Where no such launch comes before on
    the same stream, where tiles in a fixed order are expected to take no longer, or with this disabled, the
    `config` says `queue` no more, so that heights of tiles suit a fixed order. Of a config that is forced, or
    without `load`, no time is asked. Behind `join-products`, whose kernels have no queue.
  }];
}
