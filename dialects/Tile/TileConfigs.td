//===- TileConfigs.td - how schedules run phases ---------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One config attribute per schedule. A new one is a `Tile_Config` here; its syntax, text form, getters and page in
// docs/reference follow from its fields.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILECONFIGS_TD
#define MOEC_DIALECTS_TILE_TILECONFIGS_TD

include "TileConfigBase.td"
include "TileDialect.td"

//===----------------------------------------------------------------------===//
// CPU
//===----------------------------------------------------------------------===//

defvar Tile_Lanes = Tile_Number<"lanes", "f32 elements of a vector">;
defvar Tile_RowsPerCta = Tile_Number<"rows_per_cta", "rows that one CTA owns">;

def Tile_CpuContractAttr : Tile_Config<"cpu", "contract", "CpuContract", [
    Tile_Number<"register_rows", "input rows whose sums are in registers at once">,
    Tile_Number<"register_columns", "columns whose sums are in registers at once; with a layout each is a pair of weight rows">,
    Tile_Number<"step", "contracted elements of a turn of the innermost loop">,
    Tile_Number<"columns_per_cta", "columns of the result that one CTA owns">,
    Tile_Lanes,
    Tile_Number<"rows_per_cta", "rows that one CTA owns; 0 with offsets: all of a group">]> {
  let summary = "config of cpu.contract";
  let description = [{
    A CTA iterates over its columns with `register_rows` x `register_columns` sums in vector registers.

    ```mlir
    #tile.cpu_contract<register_rows = 4, register_columns = 4, step = 32, columns_per_cta = 32, lanes = 16>
    ```
  }];
}

def Tile_CpuTopKAttr : Tile_Config<"cpu", "top_k", "CpuTopK", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.top_k";
}

def Tile_CpuRankAttr : Tile_Config<"cpu", "rank", "CpuRank", []> {
  let summary = "config of cpu.rank, which sorts in one CTA";
}

def Tile_CpuPlaceIdsAttr : Tile_Config<"cpu", "place_ids", "CpuPlaceIds", [Tile_RowsPerCta]> {
  let summary = "config of cpu.place_ids";
}

def Tile_CpuRowMapAttr : Tile_Config<"cpu", "row_map", "CpuRowMap", [Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.row_map";
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
    Tile_Number<"register_columns", "columns whose sums are in registers at once; 0: a vector of them">,
    Tile_Lanes, Tile_RowsPerCta]> {
  let summary = "config of cpu.gather_reduce";
}

//===----------------------------------------------------------------------===//
// Every GPU
//===----------------------------------------------------------------------===//

defvar Tile_VectorWidth = Tile_Number<"vector_width", "elements that a thread loads or stores at once">;
defvar Tile_ColumnsPerCta = Tile_Number<"columns_per_cta", "columns of a row that one CTA owns">;
defvar Tile_Threads = Tile_Number<"threads", "threads of a CTA">;
defvar Tile_ExpertsAtOnce = Tile_Number<"experts_at_once", "local experts that have counters in shared memory at once">;
defvar Tile_TokensPerCta = Tile_Number<"tokens_per_cta", "tokens that one CTA owns, or more where there would be too many CTAs">;

def Tile_Sm80ContractAttr : Tile_Config<"sm80", "contract", "Sm80Contract", [
    Tile_Number<"tile_rows", "input rows of a CTA's tile">,
    Tile_Number<"tile_columns", "columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"step", "contracted elements of a stage of the pipeline">,
    Tile_VectorWidth]> {
  let summary = "config of sm80.contract";
  let description = [{
    ```mlir
    #tile.sm80_contract<tile_rows = 64, tile_columns = 64, step = 64, vector_width = 8>
    ```
  }];
}

def Tile_Sm80GemvAttr : Tile_Config<"sm80", "gemv", "Sm80Gemv", [
    Tile_Number<"tile_rows", "input rows of a CTA's tile">,
    Tile_Number<"tile_columns", "columns of a CTA's tile">,
    Tile_Number<"step", "contracted elements of a step of the tensor cores; 0: FMAs multiply">,
    Tile_Number<"threads", "threads of a CTA, which share the contracted dimension">]> {
  let summary = "config of sm80.gemv, for few rows and few columns";
}

def Tile_Sm80TopKAttr : Tile_Config<"sm80", "top_k", "Sm80TopK", [
    Tile_Threads, Tile_TokensPerCta,
    Tile_Number<"max_ctas", "the most CTAs; 0: any number">]> {
  let summary = "config of sm80.top_k";
}

def Tile_Sm80CountSlotsAttr : Tile_Config<"sm80", "count_slots", "Sm80CountSlots", [Tile_Threads, Tile_ExpertsAtOnce]> {
  let summary = "config of sm80.count_slots";
}

def Tile_Sm80RankAttr : Tile_Config<"sm80", "rank", "Sm80Rank", [Tile_Threads, Tile_TokensPerCta, Tile_ExpertsAtOnce]> {
  let summary = "config of sm80.rank";
}

def Tile_Sm80PlaceIdsAttr : Tile_Config<"sm80", "place_ids", "Sm80PlaceIds", [
    Tile_Number<"slots_per_cta", "ids that one CTA places, by a thread each">]> {
  let summary = "config of sm80.place_ids";
}

def Tile_Sm80RowMapAttr : Tile_Config<"sm80", "row_map", "Sm80RowMap", [Tile_ColumnsPerCta, Tile_VectorWidth]> {
  let summary = "config of sm80.row_map";
}

def Tile_Sm80TensorScaleAttr : Tile_Config<"sm80", "tensor_scale", "Sm80TensorScale", [Tile_VectorWidth]> {
  let summary = "config of sm80.tensor_scale, which runs in one CTA";
}

def Tile_Sm80QuantizeAttr : Tile_Config<"sm80", "quantize", "Sm80Quantize", [
    Tile_Number<"elements_per_cta", "elements of the list of all rows' groups that one CTA takes at a time">,
    Tile_VectorWidth]> {
  let summary = "config of sm80.quantize";
}

def Tile_Sm80GatherRowsAttr : Tile_Config<"sm80", "gather_rows", "Sm80GatherRows", [
    Tile_Number<"warps", "warps of a CTA, which copy a row each">]> {
  let summary = "config of sm80.gather_rows";
}

def Tile_Sm80GatherReduceAttr : Tile_Config<"sm80", "gather_reduce", "Sm80GatherReduce", [
    Tile_ColumnsPerCta, Tile_VectorWidth,
    Tile_Number<"token_stride", "from one token of a CTA to its next one: the most CTAs along tokens">]> {
  let summary = "config of sm80.gather_reduce";
}

//===----------------------------------------------------------------------===//
// Hopper
//===----------------------------------------------------------------------===//

def Tile_Sm90RepackAttr : Tile_Config<"sm90", "repack", "Sm90Repack", [Tile_Threads]> {
  let summary = "config of sm90.repack, which prepacks 64 rows per CTA";
}

def Tile_Sm90ContractAttr : Tile_Config<"sm90", "contract", "Sm90Contract", [
    Tile_Numbers<"tile_rows", "heights of a CTA's tiles, ascending; code exists for each">,
    Tile_Number<"tile_columns", "columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"step", "contracted elements of a stage">,
    Tile_Number<"stages", "buffers of the pipeline between memory and tensor cores">,
    Tile_Number<"l2_rows", "rows of a group that meet all columns before others do, so that they stay in the second-level cache; 0: all">,
    Tile_Flag<"map_rows", "rows of the input come by tensor maps">,
    Tile_Flag<"rows_on_m", "rows of the input are on the side of tensor cores whose width is fixed, in tiles that are one or two such sides high">,
    Tile_Flag<"queue", "CTAs take tiles one after another from a queue, not in a fixed order">]> {
  let summary = "config of sm90.contract";
  let description = [{
    ```mlir
    #tile.sm90_contract<tile_rows = [16, 32], tile_columns = 64, step = 64, stages = 12, map_rows>
    ```
  }];
  let extraClassDeclaration = baseDeclaration # [{
    ConfigAttr withQueue(bool queue) const;
    ConfigAttr withMapRows(bool mapRows) const;
  }];
}

//===----------------------------------------------------------------------===//
// Blackwell
//===----------------------------------------------------------------------===//

def Tile_Sm100ContractAttr : Tile_Config<"sm100", "contract", "Sm100Contract", [
    Tile_Number<"tile_rows", "the most input rows of a CTA's tile; a tile of fewer multiplies no others">,
    Tile_Number<"tile_columns", "columns of a CTA's tile; with a layout each is a pair of weight rows">,
    Tile_Number<"stages", "buffers of the pipeline between memory and tensor cores">]> {
  let summary = "config of sm100.contract";
  let description = [{
    ```mlir
    #tile.sm100_contract<tile_rows = 112, tile_columns = 128, stages = 4>
    ```
  }];
}

#endif
