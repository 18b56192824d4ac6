//===- Config.td - configs of sm90.gemm and sm90.prepack ---*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SM90GEMM_CONFIG_TD
#define MOEC_SCHEDULES_SM90GEMM_CONFIG_TD

include "TileConfigBase.td"

def Tile_Sm90PrepackAttr : Tile_Config<"sm90", "prepack", "Sm90Prepack", [Tile_Threads]> {
  let summary = "config of sm90.prepack, which prepacks 64 rows per CTA";
}

def Tile_Sm90GemmAttr : Tile_Config<"sm90", "gemm", "Sm90Gemm", [
    Tile_Numbers<"block_m", "values of BLOCK_M (input rows of a CTA's tile), ascending; the kernel has code for each">,
    Tile_Number<"block_n", "BLOCK_N: columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"block_k", "BLOCK_K: elements of K in a stage">,
    Tile_Number<"stages", "stages of the pipeline in shared memory">,
    Tile_Number<"l2_rows", "rows of a group that meet all columns before the next rows, to stay in L2; 0: all">,
    Tile_Flag<"map_rows", "tensor maps (TMA) load the input rows, which must be in order">,
    Tile_Flag<"no_swap_ab", "input rows are the M side, in tiles of 64 or 128 rows; otherwise A and B are swapped">,
    Tile_Flag<"dynamic_scheduler", "dynamic tile scheduler: CTAs take the next tile from a counter, not in a fixed order">,
    Tile_Flag<"multicast_weights", "clusters of two CTAs, whose tiles share weights: each copies half of them to both">,
    Tile_Number<"split_k", "clusters of so many CTAs, each of which multiplies a share of one tile's k tiles; 0: none">]> {
  let summary = "config of sm90.gemm";
  let description = [{
    ```mlir
    #tile.sm90_gemm<block_m = [16, 32], block_n = 64, block_k = 64, stages = 12, map_rows>
    ```
  }];
}

#endif
