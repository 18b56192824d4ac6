//===- TileEnums.td - enums of the tile dialect ----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEENUMS_TD
#define MOEC_DIALECTS_TILE_TILEENUMS_TD

include "mlir/IR/EnumAttr.td"

def Tile_SumUnit : I32Enum<"SumUnit", "what adds the products of a gemm", [
    I32EnumCase<"Fma", 0, "fma">, I32EnumCase<"TensorCore", 1, "tensor_core">,
    I32EnumCase<"Dot", 2, "dot">]> {
  let cppNamespace = "::moec::tile";
}

#endif
