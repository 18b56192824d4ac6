//===- Config.td - configs of the schedules of adapters -----*- tablegen -*-===//
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

def Tile_GpuLoraTileAttr : Tile_Config<"gpu", "lora_tile", "GpuLoraTile", [
    Tile_Number<"warps", "warps of a CTA, which share the width of the rows">,
    Tile_Number<"column_tiles", "tiles of 8 columns that a CTA computes">]> {
  let summary = "config of gpu.lora_tile";
}

def Tile_GpuLoraPartsAttr : Tile_Config<"gpu", "lora_parts", "GpuLoraParts", [
    Tile_Number<"warps", "warps of a CTA, which share the width of the rows">,
    Tile_Number<"column_tiles", "tiles of 8 columns that a CTA computes, of all matrices side by side">]> {
  let summary = "config of gpu.lora_parts";
}

def Tile_GpuLoraUpdateAttr : Tile_Config<"gpu", "lora_update", "GpuLoraUpdate", [
    Tile_Number<"warps", "warps of a CTA, which share the width of the rows, then the columns">]> {
  let summary = "config of gpu.lora_update";
}

#endif
