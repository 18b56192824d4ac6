//===- Config.td - config of sm80.gemm ---------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SM80GEMM_CONFIG_TD
#define MOEC_SCHEDULES_SM80GEMM_CONFIG_TD

include "TileConfigBase.td"

def Tile_Sm80GemmAttr : Tile_Config<"sm80", "gemm", "Sm80Gemm", [
    Tile_Number<"block_m", "BLOCK_M: input rows of a CTA's tile">,
    Tile_Number<"block_n", "BLOCK_N: columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"block_k", "BLOCK_K: elements of K in a stage of the pipeline">,
    Tile_VectorWidth]> {
  let summary = "config of sm80.gemm";
  let description = [{
    ```mlir
    #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 64, vector_width = 8>
    ```
  }];
}

#endif
