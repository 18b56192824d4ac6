//===- Config.td - config of gpu.gemv ----------------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_GEMV_CONFIG_TD
#define MOEC_SCHEDULES_GEMV_CONFIG_TD

include "TileConfigBase.td"

def Tile_GpuGemvAttr : Tile_Config<"gpu", "gemv", "GpuGemv", [
    Tile_Number<"block_m", "BLOCK_M: input rows of a CTA's tile">,
    Tile_Number<"block_n", "BLOCK_N: columns of a CTA's tile">,
    Tile_Number<"block_k", "elements of K per tensor core instruction; 0: multiply with FMAs">,
    Tile_Number<"threads", "threads of a CTA, which split K">]> {
  let summary = "config of gpu.gemv, for few rows and few columns";
}

#endif
