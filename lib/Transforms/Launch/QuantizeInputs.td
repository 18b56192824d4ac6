//===- QuantizeInputs.td - a rewrite of launches -----------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def QuantizeInputsRewrite : LaunchRewrite<"quantize-inputs"> {
  let summary = "let products quantize the rows that they multiply";
  let description = [{
    Makes one `resident` kernel of a `tile.quantize` of whole rows and the grouped product behind it on the same stream, with
    the same offsets, that multiplies what it makes: the product `awaits` in each CTA that all have quantized
    their share, by the counter of its queue, which a ranking before both clears. There is one launch less, for whose
    CTAs those of the product would wait, and the weights that they copy. `always` makes it wherever it is legal, else it is where that is expected to
    take less time. A product or a quantization whose config is forced
    keeps it; a quantization whose config is forced stays a launch.
  }];
}
