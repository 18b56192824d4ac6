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

def Tile_RouteRowsOp : Tile_Phase<"route_rows"> {
  let summary = "index of each row among the rows for each destination rank";
  let description = [{
    With n ranks and `tokens` rows, `positions[r * tokens + t]` is the number of rows before row t that go to rank r,
    or -1 if row t does not go to rank r. Row t goes to rank r if, by `destinations`, r holds the expert of one of its
    `ids`. `counts` has the number of rows for each of the n ranks. Ids out of range have no destination, and rows
    from `num_valid_tokens` on go nowhere.

    ```mlir
    tile.route_rows tokens(%tokens) ids(%ids : memref<?x2xi32>) destinations(%destinations : memref<64xi32>)
        outs(%positions, %counts : memref<?xi32>, memref<4xi32>)
    ```
  }];
  let arguments = (ins I64:$tokens, Arg<MemRefOf<[I32]>, "read", [MemRead]>:$ids,
    Arg<MemRefOf<[I32]>, "read", [MemRead]>:$destinations,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$num_valid_tokens,
    Arg<MemRefOf<[I32]>, "written", [MemWrite]>:$positions,
    Arg<MemRefOf<[I32]>, "written", [MemWrite]>:$counts, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ids` `(` $ids `:` type($ids) `)`
    `destinations` `(` $destinations `:` type($destinations) `)`
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    `outs` `(` $positions `,` $counts `:` type($positions) `,` type($counts) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_PackRowsOp : Tile_Phase<"pack_rows", [AttrSizedOperandSegments]> {
  let summary = "copy of rows into one message per destination rank";
  let description = [{
    Copies each row of `ins` to its destination ranks by `positions` and `counts` of `tile.route_rows`. Rows for other
    ranks go to the corresponding one of `packed`. If the second word of `header` is 0, they follow the rows for all
    ranks before; else it is the capacity, and each rank has a block of that many rows, in rank order, without a block
    for the own rank. Rows beyond the capacity are dropped. Rows for the own rank, whose index is the first word, go
    to the corresponding one of `outs`, to the rank's block of `tokens` rows. If the capacity is too small, the third
    word becomes the largest number of rows of any rank.

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
  let summary = "sum of the rows that come back from destination ranks";
  let description = [{
    Row t of `result` is the sum, in f32, of one partial per rank, in rank order, rounded once. For a rank that row t
    went to, the partial is the row that came back: in `packed`, where `tile.pack_rows` had put the row sent, or, for
    the own rank, in `input` at that position of its block of `tokens` rows. The partial of a row dropped for lack of
    capacity is NaN. The partials of other ranks are +0.0.

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
