//===- Config.td - configs of gpu.lora_shrink, gpu.lora_expand *- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_LORA_CONFIG_TD
#define MOEC_SCHEDULES_LORA_CONFIG_TD

include "TileConfigBase.td"

def Tile_GpuLoraShrinkAttr : Tile_Config<"gpu", "lora_shrink", "GpuLoraShrink", [
    Tile_Number<"warps", "warps of a CTA, each of which computes some columns of a row">,
    Tile_Number<"columns_per_warp", "columns that a warp computes">, Tile_VectorWidth]> {
  let summary = "config of gpu.lora_shrink";
}

def Tile_GpuLoraExpandAttr : Tile_Config<"gpu", "lora_expand", "GpuLoraExpand", [
    Tile_Threads, Tile_Number<"columns_per_thread", "columns that a thread, or those that share a column, compute">,
    Tile_Number<"threads_per_column", "neighbouring threads that share a column, a power of two up to 32">,
    Tile_VectorWidth]> {
  let summary = "config of gpu.lora_expand";
}

#endif
