//===- JoinRouting.td - a rewrite of launches --------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def JoinRoutingRewrite : LaunchRewrite<"join-routing"> {
  let summary = "route and sort in each CTA of the first gemm";
  let description = [{
    Makes the phases of a launch that routes and sorts few tokens (`fuse-routing`) the first phases of the gemm's kernel
    behind it. Each CTA routes and sorts all tokens in shared memory of its own (`private_rows`), so that no CTA
    waits for another, and then asks for its weights. One CTA stores the results for later launches. The gemms get fewer
    stages if shared memory requires it. The counter that the sort would clear is `cleared` by the launch that makes
    the logits.

    `always`: join the routing; without it none is joined, since no times have been measured.
  }];
}
