//===- Config.td - configs of the schedules of the CPU -----*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_CPU_CONFIG_TD
#define MOEC_SCHEDULES_CPU_CONFIG_TD

include "TileConfigBase.td"

defvar Tile_Lanes = Tile_Number<"lanes", "f32 elements of a vector">;
defvar Tile_RowsPerCta = Tile_Number<"rows_per_cta", "rows that one CTA computes">;

def Tile_CpuGemmAttr : Tile_Config<"cpu", "gemm", "CpuGemm", [
    Tile_Number<"register_rows", "input rows of the register tile">,
    Tile_Number<"register_columns", "columns of the register tile; with a layout each is a pair of weight rows">,
    Tile_Number<"block_k", "elements of K per iteration of the innermost loop">,
    Tile_Number<"columns_per_cta", "columns of the result that one CTA computes">,
    Tile_Lanes,
    Tile_Number<"rows_per_cta", "rows that one CTA computes; 0 with offsets: all rows of a group">,
    Tile_Number<"instruction_k", "elements of K per instruction: 0 or 1 for FMAs, 2 for VDPBF16PS, 4 for VPDPBUSD, 32 for AMX tiles of bf16, 64 for those of int8">]> {
  let summary = "config of cpu.gemm";
  let description = [{
    A CTA iterates over its columns with `register_rows` x `register_columns` sums in vector registers.

    ```mlir
    #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 32, lanes = 16>
    ```
  }];
}

def Tile_CpuTopKAttr : Tile_Config<"cpu", "top_k", "CpuTopK", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.top_k";
}

def Tile_CpuSortByExpertAttr : Tile_Config<"cpu", "sort_by_expert", "CpuSortByExpert", []> {
  let summary = "config of cpu.sort_by_expert, which sorts in one CTA";
}

def Tile_CpuPlaceIdsAttr : Tile_Config<"cpu", "place_ids", "CpuPlaceIds", [Tile_RowsPerCta]> {
  let summary = "config of cpu.place_ids";
}

def Tile_CpuRowMapAttr : Tile_Config<"cpu", "row_map", "CpuRowMap", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.row_map";
}

def Tile_CpuRmsNormAttr : Tile_Config<"cpu", "rms_norm", "CpuRmsNorm", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.rms_norm";
}

def Tile_CpuLoraShrinkAttr : Tile_Config<"cpu", "lora_shrink", "CpuLoraShrink", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.lora_shrink";
}

def Tile_CpuTensorScaleAttr : Tile_Config<"cpu", "tensor_scale", "CpuTensorScale", [Tile_Lanes]> {
  let summary = "config of cpu.tensor_scale, which runs in one CTA";
}

def Tile_CpuQuantizeAttr : Tile_Config<"cpu", "quantize", "CpuQuantize", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.quantize";
}

def Tile_CpuGatherRowsAttr : Tile_Config<"cpu", "gather_rows", "CpuGatherRows", [Tile_RowsPerCta]> {
  let summary = "config of cpu.gather_rows";
}

def Tile_CpuGatherReduceAttr : Tile_Config<"cpu", "gather_reduce", "CpuGatherReduce", [
    Tile_Number<"register_columns", "columns whose sums are in registers at once; 0: one vector">,
    Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.gather_reduce";
}

#endif
