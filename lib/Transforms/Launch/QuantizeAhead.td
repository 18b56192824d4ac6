//===- QuantizeAhead.td - a rewrite of launches ------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeAheadRewrite : LaunchRewrite<"quantize-ahead"> {
  let summary = "let the launch that routes few tokens quantize them while it waits";
  let description = [{
    Makes a launch that quantizes what no launch before it touches, such as hidden states, and the one right
    before it, which routes and ranks in one CTA (`fuse-routing`), one launch, of a kernel that quantizes
    first (`@hidden_quantized_route_0_route_1`): CTAs do that while others still make logits, the first one then
    waits for these, and the product behind waits for one launch less. Only where the schedule that routes waits by
    itself, not at the kernel's entry (docs/gpu.md). A quantization whose config is forced stays alone.
  }];
}
