//===- QuantizeResults.td - a rewrite of launches ----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeResultsRewrite : LaunchRewrite<"quantize-results"> {
  let summary = "let products quantize their results";
  let description = [{
    Gives a grouped product `result_scale`, so that it writes e4m3 and scales itself, or `result_tensor_scale`, the
    given scale by which it writes e4m3 or int8, where each of its launches is followed by one of a `tile.quantize` of its results, on the same stream and with the same
    offsets, and nothing else reads these: there is one launch less, and less to write and read. Where it is expected
    to take less time, though a CTA then has 128 columns. Kernels keep their names. A product whose config is forced
    keeps it, and quantizes if it can; a quantization whose config is forced stays.
  }];
}
