//===- Config.td - config of sm100.gemm --------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SM100GEMM_CONFIG_TD
#define MOEC_SCHEDULES_SM100GEMM_CONFIG_TD

include "TileConfigBase.td"

def Tile_Sm100GemmAttr : Tile_Config<"sm100", "gemm", "Sm100Gemm", [
    Tile_Number<"block_m", "largest BLOCK_M, the input rows of a CTA's tile; smaller tiles multiply only their rows">,
    Tile_Number<"block_n", "BLOCK_N: columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"stages", "stages of the pipeline in shared memory">]> {
  let summary = "config of sm100.gemm";
  let description = [{
    ```mlir
    #tile.sm100_gemm<block_m = 112, block_n = 128, stages = 4>
    ```
  }];
}

#endif
