//===- QuantizeResults.td - a rewrite of launches ----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeResultsRewrite : LaunchRewrite<"quantize-results"> {
  let summary = "quantize the results of gemms in their epilogues";
  let description = [{
    Gives a grouped gemm `result_scale`, to write e4m3 and scales itself, or `result_tensor_scale`, the given scale to
    write e4m3 or int8, if each of its launches is followed by one of a `tile.quantize` of its results, on the same
    stream and with the same offsets, and the results have no other use. There is one launch less, and less to write
    and read. Applied if predicted to save time, even though a CTA then has 128 columns. Kernels keep their names. A
    gemm with a forced config keeps it, and quantizes if it can; a quantization with a forced config stays.
  }];
}
