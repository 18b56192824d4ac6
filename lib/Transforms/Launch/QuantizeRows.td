//===- QuantizeRows.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeRowsRewrite : LaunchRewrite<"quantize-rows"> {
  let summary = "quantize the rows of gemms as they are copied";
  let description = [{
    Removes a `tile.quantize` of bf16 or f16 rows, in groups or by a given scale, if only gemms multiply its results:
    these get `quantizes_input` and read the rows themselves. There is one launch less, and a gemm before it may write
    its results in tiles of any width. Each CTA quantizes the rows of its tiles again, so tiles have few rows. Applied,
    in ranges of up to `most` tokens (1), if predicted to save more time than `quantize-results` would, or wherever legal
    with `always`. A gemm with a forced config keeps it, and quantizes if it can; a
    quantization with a forced config stays.
  }];
}
