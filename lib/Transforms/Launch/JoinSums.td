//===- JoinSums.td - a rewrite of launches -----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def JoinSumsRewrite : LaunchRewrite<"join-sums"> {
  let summary = "add rows in the kernel of the gemm that makes them";
  let description = [{
    Makes a `tile.gather_reduce` the last phase of the kernel of the gemm that writes its rows, joined gemms included.
    Each CTA `signals` when its results are stored, and CTAs with a share of the sums await all signals. The counter
    is the one that the gemm has, or one that the `tile.sort_by_expert` before it clears. The kernel is `resident`.

    `always`: join the sums; without it none are joined, since no times have been measured.
  }];
}
