//===- MoeDialect.td - the moe dialect -------------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOEDIALECT_TD
#define MOEC_DIALECTS_MOE_MOEDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Moe_Dialect : Dialect {
  let name = "moe";
  let cppNamespace = "::moec::moe";
  let summary = "the computation of a Mixture-of-Experts layer";
  let description = [{
    The level `moe` says what is computed: on tensors, with value semantics, without devices, buffers or order. A
    layer is one `moe.layer`. `moe-decompose` rewrites it into the pipeline `moe.route` -> `moe.permute` ->
    `moe.grouped_matmul` (gate and up, with the activation as a region) -> `moe.grouped_matmul` (down, weighted) ->
    `moe.unpermute`, with dense `moe.grouped_matmul`s for the router, latent projections and the shared expert.

    Formulas, tensor names and rounding points are those of docs/use/layers.md. Elementwise operations (activation,
    scoring, weighting) are scalar regions on f32; operations on neighbours (softmax, top-k, groups, quantization) are
    attributes.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

#endif
