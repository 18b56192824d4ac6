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

def Tile_Sm80ExchangeAttr : Tile_Config<"sm80", "exchange", "Sm80Exchange", [
    Tile_Number<"ctas", "the most CTAs of a launch, up to 64">,
    Tile_Number<"threads", "threads of a CTA">,
    Tile_Number<"pieces", "pieces of up to 16 bytes that a thread moves in a round">,
    Tile_Number<"least_rows", "of a rank, from which on rows are moved for their owners alone">]> {
  let summary = "how sm80.exchange moves rows";
  let description = [{
    CTA c of a rank meets CTA c of each other rank and no other CTA. In a round each of its threads moves so many
    pieces; a flag is set behind each round, so that what has come is taken while more is on the way. With fewer rows
    of a rank than `least_rows` nobody asks for owners, since that would take longer than what it saves.

    ```mlir
    #tile.sm80_exchange<ctas = 64, threads = 512, pieces = 4, least_rows = 256>
    ```
  }];
}

def Tile_ExchangeOp : Tile_Phase<"exchange", [AttrSizedOperandSegments]> {
  let summary = "a collective of the ranks of an axis, through each other's memory";
  let description = [{
    What `plan.collective` says of `kind`, for `tokens` rows: those that one rank sends to an `all_gather` and an
    `all_reduce`, and gets of a `reduce_scatter`. `ins` and `outs` are pairs, in the shapes of that op; sums are f32, in
    the order of ranks, rounded once. Above 32 bits `tokens` of an `all_gather` has a bit for each of the first 31 pairs,
    set where the pair is left alone: it has been copied (`PeerHeap::kRowBits`).

    `heaps` has the heap of each of the n ranks (2 to 16), as this rank can write it: its own first, then that of the
    next rank, and so on, from the last rank to the first. How a heap is laid out, and what its owner writes to
    it before the first launch, is in `moert/PeerHeap.h`. All ranks run the kernel, each with `tokens` of the same value.
    Nobody waits for ever: a rank that does not come within the limit in the heap, or that gives up, lets the
    kernel end with a record of that in the rank's own heap, and what it wrote is undefined.

    Every rank pushes what it has into the heap of each rank that needs it, at a place that belongs to the sender, sets
    a flag behind it there (a release, of all GPUs), waits for such flags in its own heap (an acquire) and
    takes or sums what has come. Places are two, in turns: who has seen a rank's flag of one exchange knows that
    the rank is done with the exchange before it, so that nobody waits before a push.

    `to_results`, of an `all_gather`: `outs` lie in the rank's own heap, each at the same place in those of all ranks, and
    every rank pushes its rows to where they are in `outs` of the others. Nothing is taken then, and nobody waits before all
    is pushed. That ranks are done with what was there is the caller's to know.

    `owners`, `ids`, `owned` and `experts_per_owner` are those of `plan.collective`. Of what `owned` numbers a rank pushes a row to the owners
    alone, and as much of a sum as it owns; it finds them by `ids`, on both sides by the same ones. A schedule may
    leave out less. What nobody pushed is read from the heap all the same, where it is anything that was written there
    before, and is no part of a sum.

    With `sums_of`, of a kind that sums, the one of `ins` is not read: its rows are the sums that `tile.gather_reduce`
    makes of `rows` by `position`, with `addend` and `num_valid_tokens`, rounded as there, and are pushed as they are
    made.

    With `codes_of`, of an `all_gather`, the two of `ins` that `coded` numbers are not read: codes and scales are those that
    `tile.quantize` makes of these rows by `quant`, e4m3 in groups of 32, 64 or 128 of a row, or e4m3 or int8 by token, each group
    or row with an f32 of its own, and are pushed as they are made.

    With `first_column` it moves `num_columns` columns of these sums from that one on, a multiple of it, as a piece of a
    `plan.collective` does; rows lie in all memrefs where they do without.

    ```mlir
    tile.exchange all_gather tokens(%tokens) ins(%x : memref<?x8xbf16>) outs(%all : memref<?x8xbf16>)
        owners(%o : memref<64xi32>) ids(%ids : memref<?x2xi32>) owned [0]
        heaps(%own, %other : memref<?xi64>, memref<?xi64>)
    ```
  }];
  let arguments = (ins
    Plan_CollectiveKindAttr:$kind, I64:$tokens,
    Arg<Variadic<AnyMemRef>, "read", [MemRead]>:$ins,
    Arg<Variadic<AnyMemRef>, "written", [MemWrite]>:$outs,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$owners,
    Arg<Variadic<MemRefOf<[I32]>>, "read", [MemRead]>:$ids,
    OptionalAttr<DenseI64ArrayAttr>:$owned, OptionalAttr<I64Attr>:$experts_per_owner,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$rows,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$position,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$addend,
    Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>:$num_valid_tokens,
    Arg<Optional<AnyMemRef>, "read", [MemRead]>:$uncoded,
    OptionalAttr<DenseI64ArrayAttr>:$coded, OptionalAttr<Moe_QuantAttr>:$quant,
    Arg<Variadic<MemRefOf<[I64]>>, "read and written", [MemRead, MemWrite]>:$heaps,
    Optional<I64>:$first_column, OptionalAttr<I64Attr>:$num_columns, UnitAttr:$to_results,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `` $kind (`to_results` $to_results^)? `tokens` `(` $tokens `)` `ins` `(` $ins `:` type($ins) `)` `outs` `(` $outs `:` type($outs) `)`
    (`owners` `(` $owners^ `:` type($owners) `)`)? (`ids` `(` $ids^ `:` type($ids) `)`)? (`owned` $owned^)?
    (`sums_of` `(` $rows^ `,` $position `:` type($rows) `,` type($position) `)`)?
    (`addend` `(` $addend^ `:` type($addend) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`codes_of` `(` $uncoded^ `:` type($uncoded) `)`)? (`coded` $coded^)? (`by` $quant^)?
    `heaps` `(` $heaps `:` type($heaps) `)` (`first_column` `(` $first_column^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The type of what is moved of one of `ins`.
    ::mlir::MemRefType getMovedType(size_t index);
  }];
}

include "TilePackedRows.td"

#endif
