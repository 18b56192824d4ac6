//===- QuantizeAhead.td - a rewrite of launches ------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeAheadRewrite : LaunchRewrite<"quantize-ahead"> {
  let summary = "quantize a few tokens in the launch that routes them, while it waits";
  let description = [{
    Fuses a launch that quantizes a tensor which no earlier launch writes, such as hidden states, with the launch
    right before it, which routes and sorts in one CTA (`fuse-routing`). The kernel quantizes first
    (`@hidden_quantized_route_0_route_1`): CTAs quantize while earlier launches still compute logits, the first CTA
    then waits for these, and the following gemm waits for one launch less. Requires a routing schedule that waits by
    itself, not at the kernel's entry (docs/design/lowering-to-gpu.md). A quantization with a forced config is not fused.
  }];
}
