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
  let summary = "4-bit NormalFloat: an index into a fixed code book";
  let description = [{
    NormalFloat, as bitsandbytes stores weights: value i is entry i of the code book in docs/use/layers.md#quantization,
    f32 from -1 to 1, denser near 0. Only a storage of `#moe.quant`: tensors of it have bytes as elements.

    ```mlir
    #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs>
    ```
  }];
}

def Moe_CodeBookType : TypeDef<Moe_Dialect, "CodeBook"> {
  let mnemonic = "code_book";
  let summary = "4-bit index into a code book of the user";
  let description = [{
    Value i is entry i of the 16 `numbers`, in any order, repetitions allowed. Entries are finite and at most 65504 in
    magnitude, the largest f16. A gemm that dequantizes to bf16 or f16 rounds them to that type. Only a storage of
    `#moe.quant`, like `!moe.nf4` (docs/howto/add-a-format.md).

    ```mlir
    !moe.code_book<[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]>
    ```
  }];
  let parameters = (ins "::mlir::DenseF32ArrayAttr":$numbers);
  let assemblyFormat = "`<` $numbers `>`";
  let genVerifyDecl = 1;
}

#endif
