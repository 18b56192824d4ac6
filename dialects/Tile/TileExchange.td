//===- TileExchange.td - phases that several ranks run ---------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEEXCHANGE_TD
#define MOEC_DIALECTS_TILE_TILEEXCHANGE_TD

include "TileConfigBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_ExchangeOp : Tile_Phase<"exchange", [AttrSizedOperandSegments]> {
  let summary = "a collective of the ranks of an axis through peer memory";
  let description = [{
    The collective `kind` of `plan.collective`. `tokens` is the number of rows that one rank sends to an `all_gather`
    or an `all_reduce`, or receives from a `reduce_scatter`. `ins` and `outs` are pairs with the shapes of that op;
    sums are f32, in rank order, rounded once. Above its low 32 bits, `tokens` of an `all_gather` has one bit for each
    of the first 31 pairs, set if the pair is skipped because it has been copied (`PeerHeap::kRowBits`).

    `heaps` has the heap of each of the n ranks (2 to 16), as mapped on this rank: its own first, then that of the
    next rank, and so on, from the last rank to the first. `moert/PeerHeap.h` has the layout of a heap and what its
    rank writes to it before the first launch. All ranks run the kernel with equal `tokens`. Waits are bounded: if a
    rank does not arrive within the limit in the heap, or gives up, the kernel ends with a record of that in its own
    heap, and its results are undefined.

    Every rank pushes its data into the heap of each rank that needs it, into the sender's section, then sets a flag
    there (a release at system scope), waits for such flags in its own heap (an acquire), and copies or sums what has
    arrived. Sections are double-buffered: the flag of one exchange shows that its rank is done with the exchange
    before, so no rank waits before a push.

    With `to_results`, for an `all_gather`, `outs` lie in the rank's own heap, at equal offsets on all ranks, and
    every rank pushes its rows directly into `outs` of the others. No rank copies received data, and none waits before
    it has pushed everything. The caller ensures that ranks are done with the previous contents.

    `destinations`, `ids`, `routed` and `experts_per_rank` are those of `plan.collective`. For the pairs numbered by
    `routed`, a rank pushes a row only to its destination ranks, and a partial only if it is a destination itself;
    sender and receiver find destinations by the same `ids`. A schedule may push more than that. Rows that no rank
    pushed are read from the heap all the same, with any contents, and are not part of a sum.

    With `sums_of`, for a kind that sums, the only one of `ins` is not read. Its rows are the sums that
    `tile.gather_reduce` makes of `rows` by `position`, with `addend` and `num_valid_tokens`, rounded as there, and
    pushed as they are made.

    With `unquantized`, for an `all_gather`, the two of `ins` numbered by `quantized` are not read. Quantized values and
    scales are those that `tile.quantize` makes of these rows by `quant`: e4m3 in groups of 32, 64 or 128 of a row, or
    e4m3 or int8 by token, each group or row with an f32 scale. They are pushed as they are made.

    With `first_column` it moves `num_columns` columns of these sums from that one on, which is a multiple of
    `num_columns`, like a chunk of a `plan.collective`; the layout of rows in memrefs does not change.

    ```mlir
    tile.exchange all_gather tokens(%tokens) ins(%x : memref<?x8xbf16>) outs(%all : memref<?x8xbf16>)
        destinations(%o : memref<64xi32>) ids(%ids : memref<?x2xi32>) routed [0]
        heaps(%own, %other : memref<?xi64>, memref<?xi64>)
    ```
  }];
  let arguments = (ins
    Plan_CollectiveKindAttr:$kind, I64:$tokens,
    Arg<Variadic<AnyMemRef>, "read", [MemRead]>:$ins,
    Arg<Variadic<AnyMemRef>, "written", [MemWrite]>:$outs,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$destinations,
    Arg<Variadic<MemRefOf<[I32]>>, "read", [MemRead]>:$ids,
    OptionalAttr<DenseI64ArrayAttr>:$routed, OptionalAttr<I64Attr>:$experts_per_rank,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$rows,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$position,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$addend,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$num_valid_tokens,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$unquantized,
    OptionalAttr<DenseI64ArrayAttr>:$quantized, OptionalAttr<Moe_QuantAttr>:$quant,
    Arg<Variadic<MemRefOf<[I64]>>, "read and written", [MemRead, MemWrite]>:$heaps,
    Optional<I64>:$first_column, OptionalAttr<I64Attr>:$num_columns, UnitAttr:$to_results,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `` $kind (`to_results` $to_results^)? `tokens` `(` $tokens `)` `ins` `(` $ins `:` type($ins) `)` `outs` `(` $outs `:` type($outs) `)`
    (`destinations` `(` $destinations^ `:` type($destinations) `)`)? (`ids` `(` $ids^ `:` type($ids) `)`)?
    (`routed` $routed^)?
    (`sums_of` `(` $rows^ `,` $position `:` type($rows) `,` type($position) `)`)?
    (`addend` `(` $addend^ `:` type($addend) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`unquantized` `(` $unquantized^ `:` type($unquantized) `)`)? (`quantized` $quantized^)? (`by` $quant^)?
    `heaps` `(` $heaps `:` type($heaps) `)` (`first_column` `(` $first_column^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The type of the data moved for one of `ins`.
    ::mlir::MemRefType getMovedType(size_t index);
  }];
}

include "TilePackedRows.td"

#endif
