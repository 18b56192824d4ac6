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
  let summary = "what a Mixture-of-Experts layer computes";
  let description = [{
    The level `moe` answers WHAT is computed: tensors in, tensors out, value semantics, no device,
    no buffers, no order. A layer is one `moe.layer`; `moe-decompose` rewrites it into the pipeline
    `moe.route` -> `moe.permute` -> `moe.grouped_matmul` (gate/up with the activation as a region)
    -> `moe.grouped_matmul` (down, weighted) -> `moe.unpermute`, with dense `moe.grouped_matmul`s
    for router, latent projections and the shared expert.

    Formulas, tensor names and rounding points are those of docs/layers.md. Everything that looks at
    one element at a time (activation, scoring, weighting) is a scalar region on f32; everything
    that looks at neighbours (softmax, top-k, groups, quantization) is an attribute.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

#endif
