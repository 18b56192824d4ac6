//===- MoeTypes.td - types of the moe dialect ------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOETYPES_TD
#define MOEC_DIALECTS_MOE_MOETYPES_TD

include "MoeDialect.td"

def Moe_NF4Type : TypeDef<Moe_Dialect, "NF4"> {
  let mnemonic = "nf4";
  let summary = "a number of 4 bits, one of a code book of 16";
  let description = [{
    NormalFloat, as bitsandbytes stores weights: code i is number i of docs/layers.md#quantization, which are f32, -1 to
    1, and denser about 0. A storage of `#moe.quant` and no element of a tensor, whose elements are bytes.

    ```mlir
    #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs>
    ```
  }];
}

def Moe_CodeBookType : TypeDef<Moe_Dialect, "CodeBook"> {
  let mnemonic = "code_book";
  let summary = "a number of 4 bits, one of a code book of one's own";
  let description = [{
    Code i is number i of `numbers`, 16 of them, in any order; the same number may stand twice. Each is finite and at most
    65504 in magnitude, the largest f16. Where a product decodes to bf16 or f16, numbers are rounded to it. A storage of
    `#moe.quant` and no element of a tensor, like `!moe.nf4` (docs/adding-a-format.md).

    ```mlir
    !moe.code_book<[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]>
    ```
  }];
  let parameters = (ins "::mlir::DenseF32ArrayAttr":$numbers);
  let assemblyFormat = "`<` $numbers `>`";
  let genVerifyDecl = 1;
}

#endif
