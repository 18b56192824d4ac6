//===- TilePackedRows.td - phases of an all-to-all -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEPACKEDROWS_TD
#define MOEC_DIALECTS_TILE_TILEPACKEDROWS_TD

include "TileConfigBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Sm80RouteRowsAttr : Tile_Config<"sm80", "route_rows", "Sm80RouteRows", [
    Tile_Number<"threads", "threads of a CTA, which counts the rows of one rank">]> {
  let summary = "how sm80.route_rows counts";
  let description = [{
    ```mlir
    #tile.sm80_route_rows<threads = 1024>
    ```
  }];
}

def Tile_Sm80PackRowsAttr : Tile_Config<"sm80", "pack_rows", "Sm80PackRows", [
    Tile_Number<"warps", "warps of a CTA, each of which has a row">]> {
  let summary = "how sm80.pack_rows copies";
  let description = [{
    ```mlir
    #tile.sm80_pack_rows<warps = 8>
    ```
  }];
}

def Tile_Sm80SumPackedRowsAttr : Tile_Config<"sm80", "sum_packed_rows", "Sm80SumPackedRows", [
    Tile_Number<"threads", "threads of a CTA, each of which has a piece of a row">]> {
  let summary = "how sm80.sum_packed_rows sums";
  let description = [{
    ```mlir
    #tile.sm80_sum_packed_rows<threads = 256>
    ```
  }];
}

def Tile_RouteRowsOp : Tile_Phase<"route_rows"> {
  let summary = "where each row is among those that go to one rank";
  let description = [{
    Of n ranks and `tokens` rows, `positions` at `r * tokens + t` is how many rows before row `t` go to rank `r`, if row `t` does: if
    `owners` says of one of its `ids` that `r` has the expert; else -1. `counts` has how many rows go to each rank, n of
    them. An id that is no expert's is nobody's, and rows from `num_valid_tokens` on go nowhere.

    ```mlir
    tile.route_rows tokens(%tokens) ids(%ids : memref<?x2xi32>) owners(%owners : memref<64xi32>)
        outs(%positions, %counts : memref<?xi32>, memref<4xi32>)
    ```
  }];
  let arguments = (ins I64:$tokens, Arg<MemRefOf<[I32]>, "read", [MemRead]>:$ids,
    Arg<MemRefOf<[I32]>, "read", [MemRead]>:$owners, Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$num_valid_tokens,
    Arg<MemRefOf<[I32]>, "written", [MemWrite]>:$positions,
    Arg<MemRefOf<[I32]>, "written", [MemWrite]>:$counts, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ids` `(` $ids `:` type($ids) `)` `owners` `(` $owners `:` type($owners) `)`
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    `outs` `(` $positions `,` $counts `:` type($positions) `,` type($counts) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_PackRowsOp : Tile_Phase<"pack_rows", [AttrSizedOperandSegments]> {
  let summary = "rows for each rank, one behind the other";
  let description = [{
    Copies each row of `ins` to where `positions` and `counts`, of `tile.route_rows`, say that it goes. Rows for another rank
    go to the same one of `packed`: behind all rows for the ranks before it or, if the second word of `header` is not 0
    but some number, to a block of so many rows of its own, in the order of ranks; of blocks too the own rank has none. A row that
    has no room in its block is left out. Those for this rank, whose place among the ranks is the first word, go to the same one of
    `outs`, to its block of `tokens` rows there. Where a block has fewer rows than some rank gets, the third word becomes the most
    that any gets.

    ```mlir
    tile.pack_rows tokens(%tokens) ins(%x : memref<?x8xbf16>) outs(%all : memref<?x8xbf16>) packed(%sent : memref<?x8xbf16>)
        by(%positions, %counts, %header : memref<?xi32>, memref<4xi32>, memref<3xi64>)
    ```
  }];
  let arguments = (ins I64:$tokens, Arg<Variadic<AnyMemRef>, "read", [MemRead]>:$ins,
    Arg<Variadic<AnyMemRef>, "written", [MemWrite]>:$outs, Arg<Variadic<AnyMemRef>, "written", [MemWrite]>:$packed,
    Arg<MemRefOf<[I32]>, "read", [MemRead]>:$positions, Arg<MemRefOf<[I32]>, "read", [MemRead]>:$counts,
    Arg<MemRefOf<[I64]>, "read and written", [MemRead, MemWrite]>:$header, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $ins `:` type($ins) `)` `outs` `(` $outs `:` type($outs) `)`
    `packed` `(` $packed `:` type($packed) `)`
    `by` `(` $positions `,` $counts `,` $header `:` type($positions) `,` type($counts) `,` type($header) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_SumPackedRowsOp : Tile_Phase<"sum_packed_rows"> {
  let summary = "sums of what each rank has made of a row";
  let description = [{
    Row `t` of `result` is the sum, in f32, of a part for each rank, in the order of ranks, rounded once. The part of a rank that row
    `t` went to is what has come back from there: a row of `packed`, where `tile.pack_rows` had put what was sent, and of this rank the row at that
    position of its block of `tokens` rows in `input`. Of a row that had no room it is NaN. The part of any other rank is +0.0.

    ```mlir
    tile.sum_packed_rows tokens(%tokens) input(%sums : memref<?x8xbf16>) packed(%received : memref<?x8xbf16>)
        by(%positions, %counts, %header : memref<?xi32>, memref<4xi32>, memref<3xi64>) outs(%y : memref<?x8xbf16>)
    ```
  }];
  let arguments = (ins I64:$tokens, Arg<AnyMemRef, "read", [MemRead]>:$input,
    Arg<AnyMemRef, "read", [MemRead]>:$packed, Arg<MemRefOf<[I32]>, "read", [MemRead]>:$positions,
    Arg<MemRefOf<[I32]>, "read", [MemRead]>:$counts, Arg<MemRefOf<[I64]>, "read", [MemRead]>:$header,
    Arg<AnyMemRef, "written", [MemWrite]>:$result, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `input` `(` $input `:` type($input) `)` `packed` `(` $packed `:` type($packed) `)`
    `by` `(` $positions `,` $counts `,` $header `:` type($positions) `,` type($counts) `,` type($header) `)`
    `outs` `(` $result `:` type($result) `)` attr-dict
  }];
  let hasVerifier = 1;
}

#endif
