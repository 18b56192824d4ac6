//===- AppendAdapters.td - a rewrite of launches -----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def AppendAdaptersRewrite : LaunchRewrite<"append-adapters"> {
  let summary = "multiply LoRA's second matrices by tensor cores";
  let description = [{
    Rounds the rows of a `tile.lora_shrink` to the second matrices' type. The gemm after it then multiplies them by
    these matrices as further columns of its input, with the same sums: no update is in memory, and a CTA reads the
    matrices once for the rows of a tile. For 16-bit layers and `sm90.gemm`, up to 32 adapters. Applied if predicted to
    save time; `expand-adapters` then compares its updates with this form. A gemm keeps a forced config; a shrink with
    one stays, and so does every gemm with a `sum_order`, since the sums have another order.

    `always`: 1 to apply it wherever legal, regardless of the prediction.
  }];
}
