//===- Config.td - configs of the schedules of several ranks *- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_EXCHANGE_CONFIG_TD
#define MOEC_SCHEDULES_EXCHANGE_CONFIG_TD

include "TileConfigBase.td"

def Tile_GpuExchangeAttr : Tile_Config<"gpu", "exchange", "GpuExchange", [
    Tile_Number<"ctas", "largest number of CTAs of a launch, up to 64">,
    Tile_Number<"threads", "threads of a CTA">,
    Tile_Number<"chunks", "chunks of up to 16 bytes that a thread moves in a round">,
    Tile_Number<"least_rows", "rows per rank from which on rows go only to their destination ranks">]> {
  let summary = "config of gpu.exchange";
  let description = [{
    CTA c of a rank exchanges data with CTA c of each other rank and with no other CTA. In a round each thread moves
    up to `chunks` chunks; a flag is set after each round, so that received data is consumed while more is on the way.
    With fewer rows per rank than `least_rows`, rows go to all ranks, since finding destination ranks would take
    longer than it saves.

    ```mlir
    #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4, least_rows = 256>
    ```
  }];
}

def Tile_GpuRouteRowsAttr : Tile_Config<"gpu", "route_rows", "GpuRouteRows", [
    Tile_Number<"threads", "threads of a CTA, which counts the rows of one rank">]> {
  let summary = "config of gpu.route_rows";
  let description = [{
    ```mlir
    #tile.gpu_route_rows<threads = 1024>
    ```
  }];
}

def Tile_GpuPackRowsAttr : Tile_Config<"gpu", "pack_rows", "GpuPackRows", [
    Tile_Number<"warps", "warps of a CTA, each of which copies a row">]> {
  let summary = "config of gpu.pack_rows";
  let description = [{
    ```mlir
    #tile.gpu_pack_rows<warps = 8>
    ```
  }];
}

def Tile_GpuSumPackedRowsAttr : Tile_Config<"gpu", "sum_packed_rows", "GpuSumPackedRows", [
    Tile_Number<"threads", "threads of a CTA, each of which sums a chunk of a row">]> {
  let summary = "config of gpu.sum_packed_rows";
  let description = [{
    ```mlir
    #tile.gpu_sum_packed_rows<threads = 256>
    ```
  }];
}

#endif
