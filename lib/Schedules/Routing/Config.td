//===- Config.td - configs of the schedules of routing -----*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_ROUTING_CONFIG_TD
#define MOEC_SCHEDULES_ROUTING_CONFIG_TD

include "TileConfigBase.td"

defvar Tile_ExpertsAtOnce = Tile_Number<"experts_at_once", "local experts with counters in shared memory at once">;
defvar Tile_TokensPerCta = Tile_Number<"tokens_per_cta", "tokens per CTA; more if there would be too many CTAs">;

def Tile_GpuTopKAttr : Tile_Config<"gpu", "top_k", "GpuTopK", [
    Tile_Threads, Tile_TokensPerCta,
    Tile_Number<"max_ctas", "largest number of CTAs; 0: no limit">]> {
  let summary = "config of gpu.top_k";
}

def Tile_GpuCountSlotsAttr : Tile_Config<"gpu", "count_slots", "GpuCountSlots", [Tile_Threads, Tile_ExpertsAtOnce]> {
  let summary = "config of gpu.count_slots";
}

def Tile_GpuSortByExpertAttr : Tile_Config<"gpu", "sort_by_expert", "GpuSortByExpert", [Tile_Threads, Tile_TokensPerCta, Tile_ExpertsAtOnce]> {
  let summary = "config of gpu.sort_by_expert";
}

def Tile_GpuPlaceIdsAttr : Tile_Config<"gpu", "place_ids", "GpuPlaceIds", [
    Tile_Number<"slots_per_cta", "ids per CTA, one per thread">]> {
  let summary = "config of gpu.place_ids";
}

#endif
