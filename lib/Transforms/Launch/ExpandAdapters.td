//===- ExpandAdapters.td - a rewrite of launches -----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def ExpandAdaptersRewrite : LaunchRewrite<"expand-adapters"> {
  let summary = "compute LoRA updates ahead of a gemm";
  let description = [{
    Replaces a `tile.lora_shrink` and the gemm after it, which multiplies the shrunk rows by the second matrices in its
    epilogue, by a `tile.lora_update` and a gemm that adds its results (`elementwise`). There are as many launches. The
    update reads each adapter's matrices once for up to 16 rows of an expert, where the epilogue reads a column of them
    for each result. Applied if predicted to save time: from some ten tokens on. A gemm keeps a forced config; a shrink
    with one stays, and so does every gemm with a `sum_order`, since the update adds in another order.

    `always`: 1 to apply it wherever legal, regardless of the prediction.
  }];
}
