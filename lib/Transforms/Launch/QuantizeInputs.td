//===- QuantizeInputs.td - a rewrite of launches -----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeInputsRewrite : LaunchRewrite<"quantize-inputs"> {
  let summary = "quantize the inputs of gemms in their own kernels";
  let description = [{
    Joins a `tile.quantize` of whole rows and the grouped gemm after it, on the same stream and with the same offsets,
    which multiplies its results, into one `resident` kernel. In each CTA the gemm `awaits` that all CTAs have
    quantized their share, by the counter of its tile scheduler, which a sort before both clears. There is one launch
    less, for whose CTAs those of the gemm, and the weights that they copy, would wait. Applied if predicted to save
    time, or wherever legal with `always`. A gemm with a forced config keeps it; a quantization with a forced config
    stays a launch.
  }];
}
