//===- MulticastWeights.td - a rewrite of launches ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def MulticastWeightsRewrite : LaunchRewrite<"multicast-weights"> {
  let summary = "copy weights once for two CTAs of a cluster";
  let description = [{
    Sets `multicast_weights` in the config of a grouped gemm: two CTAs of a cluster take two tiles of one group, and
    each copies half of their weights to both. Groups have four of the highest tiles on average in the middle of the
    range of tokens of the `load`. A forced config stays as it is.

    `always`: use clusters; without it there are none, since power bounds these gemms, so that fewer bytes from L2
    gain nothing.
  }];
}
