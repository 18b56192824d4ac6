//===- Config.td - configs of row maps, gathers and sums ---*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_GATHERREDUCE_CONFIG_TD
#define MOEC_SCHEDULES_GATHERREDUCE_CONFIG_TD

include "TileConfigBase.td"

def Tile_GpuRowMapAttr : Tile_Config<"gpu", "row_map", "GpuRowMap", [Tile_ColumnsPerCta, Tile_VectorWidth]> {
  let summary = "config of gpu.row_map";
}

def Tile_GpuRmsNormAttr : Tile_Config<"gpu", "rms_norm", "GpuRmsNorm", [
    Tile_Number<"threads", "threads of a CTA, which go through a row">, Tile_VectorWidth]> {
  let summary = "config of gpu.rms_norm";
}

def Tile_GpuGatherRowsAttr : Tile_Config<"gpu", "gather_rows", "GpuGatherRows", [
    Tile_Number<"warps", "warps of a CTA, each of which copies a row">]> {
  let summary = "config of gpu.gather_rows";
}

def Tile_GpuGatherReduceAttr : Tile_Config<"gpu", "gather_reduce", "GpuGatherReduce", [
    Tile_ColumnsPerCta, Tile_VectorWidth,
    Tile_Number<"token_stride", "stride between the tokens of a CTA, and largest number of CTAs along tokens">]> {
  let summary = "config of gpu.gather_reduce";
}

#endif
