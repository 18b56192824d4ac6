//===- TileOps.td - operations of the tile dialect -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEOPS_TD
#define MOEC_DIALECTS_TILE_TILEOPS_TD

include "TileConfigs.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_In : Arg<MemRefOf<[F32, BF16, F16]>, "read", [MemRead]>;
def Tile_OptIn : Arg<Optional<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>;
def Tile_OptF32In : Arg<Optional<MemRefOf<[F32]>>, "read", [MemRead]>;
def Tile_I32In : Arg<MemRefOf<[I32]>, "read", [MemRead]>;
def Tile_F32In : Arg<MemRefOf<[F32]>, "read", [MemRead]>;
def Tile_OptI32In : Arg<Optional<MemRefOf<[I32]>>, "read", [MemRead]>;
def Tile_OptI32Out : Arg<Optional<MemRefOf<[I32]>>, "written", [MemWrite]>;
def Tile_OptI32InOut : Arg<Optional<MemRefOf<[I32]>>, "read and written", [MemRead, MemWrite]>;
def Tile_Out : Arg<MemRefOf<[F32, BF16, F16]>, "written", [MemWrite]>;
def Tile_I32Out : Arg<MemRefOf<[I32]>, "written", [MemWrite]>;
def Tile_ProductIn : Arg<MemRefOf<[F32, BF16, F16, F8E4M3FN, F8E5M2, I8]>, "read", [MemRead]>;
def Tile_ProductOut : Arg<MemRefOf<[F32, BF16, F16, F8E4M3FN, I8]>, "written", [MemWrite]>;
def Tile_OptScaleIn : Arg<Optional<MemRefOf<[F32, BF16, F16, F8E8M0FNU, F8E4M3FN, I8]>>, "read", [MemRead]>;
def Tile_ScaleIn : Arg<MemRefOf<[F32, BF16, F16, F8E8M0FNU, F8E4M3FN]>, "read", [MemRead]>;
def Tile_OptZeroIn : Arg<Optional<MemRefOf<[I8, F32, BF16, F16]>>, "read", [MemRead]>;
def Tile_OptI8In : Arg<Optional<MemRefOf<[I8]>>, "read", [MemRead]>;
def Tile_OptF32Out : Arg<Optional<MemRefOf<[F32]>>, "written", [MemWrite]>;
def Tile_QuantizedOut : Arg<MemRefOf<[F8E4M3FN, I8, BF16]>, "written", [MemWrite]>;
def Tile_CodesIn : Arg<MemRefOf<[I8, F8E4M3FN]>, "read", [MemRead]>;
def Tile_I8Out : Arg<MemRefOf<[I8]>, "written", [MemWrite]>;
def Tile_F32Out : Arg<MemRefOf<[F32]>, "written", [MemWrite]>;

def Tile_TensorMapArrayAttr : TypedArrayAttrBase<Tile_TensorMapAttr, "array of #tile.tensor_map">;

def Tile_KernelOp : Tile_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a kernel: a sequence of phases";
  let description = [{
    Arguments are memrefs (row-major without gaps, at most the first dimension dynamic; weights also
    with gaps between their rows, `strided<[?, ..., 1]>`) and, last, the token count as i64, of a kernel that is launched for
    some columns at a time behind the first of them, an i64 too; there are no results. Each op of the body is a phase, which takes the token count and memrefs of the kernel;
    a phase starts when the one before is complete on all CTAs. The exception is a product that `awaits` what
    another one `signals`, or a quantization (`tile.contract`): each CTA goes on to it as soon as its own share of the other is
    done, copies weights at once, and rows when all CTAs have signaled. On a GPU a CTA also goes on from a
    `tile.top_k` to what counts or ranks its slots, where it needs just its own share of what was routed. The
    body is one block and ends in `tile.return`. `tile-split-phases` cuts kernels into one launch per phase where the target cannot
    order phases inside one. `grid` is the number of CTAs; `tile-assign-config` sets it, together with a
    `config` on each phase, from which it follows; for a GPU also `block`, the threads of a CTA,
    `shared`, its bytes of dynamic shared memory, and `tensor_maps`, the maps that a launch passes after
    the arguments. `load`, from `tile-specialize`, says for which token counts the kernel is launched.
    `form` says how it runs beside others: an `independent` kernel waits for launches before it at its end alone
    (docs/gpu.md), as `tile-find-independent` says; a `resident` one is refused by a device that cannot run all of
    its CTAs at once; in one that quantizes and then routes, whose CTAs quantize `ahead`, what a later phase reads
    the first one does not write.

    ```mlir
    tile.kernel @weighted_input(%x: memref<?x8xf32>, %w: memref<?x1xf32>, %y: memref<?x8xf32>,
        %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 4)">} {
      tile.row_map tokens(%tokens) ins(%x : memref<?x8xf32>) rows(%w : memref<?x1xf32>)
          outs(%y : memref<?x8xf32>) {
          ^bb0(%v: f32, %r: f32):
            %m = arith.mulf %v, %r : f32
            tile.yield %m : f32
          } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 4>}
      tile.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<Plan_ExprAttr>:$grid,
                       OptionalAttr<I64Attr>:$block, OptionalAttr<I64Attr>:$shared,
                       OptionalAttr<Tile_TensorMapArrayAttr>:$tensor_maps,
                       OptionalAttr<Tile_LoadAttr>:$load, OptionalAttr<Tile_KernelFormAttr>:$form,
                       OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region MinSizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::FunctionType":$type)>];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    /// The token count: the last argument.
    ::mlir::Value getTokens() { return getBody().getArguments().back(); }
    /// The first column, ahead of it; null where a launch is for all columns.
    ::mlir::Value getFirstColumn();
    // What `form` says.
    bool getIndependent() { return getFormAttr() && getFormAttr().getIndependent(); }
    bool getAhead() { return getFormAttr() && getFormAttr().getAhead(); }
    bool getResident() { return getFormAttr() && getFormAttr().getResident(); }
    void setIndependent(bool independent) { setForm(independent, getAhead(), getResident()); }
    void setAhead(bool ahead) { setForm(getIndependent(), ahead, getResident()); }
    void setResident(bool resident) { setForm(getIndependent(), getAhead(), resident); }

  private:
    void setForm(bool independent, bool ahead, bool resident);

  public:
  }];
}

def Tile_ReturnOp : Tile_Op<"return", [HasParent<"KernelOp">, Terminator]> {
  let summary = "ends a kernel";
  let description = [{
    Kernels have no results: they write memrefs.

    ```mlir
    tile.return
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_YieldOp : Tile_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["TopKOp", "ContractOp", "RowMapOp"]>]> {
  let summary = "ends a scalar region";
  let description = [{
    The one f32 that a scalar region computes.

    ```mlir
    tile.yield %y : f32
    ```
  }];
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Tile_TopKOp : Tile_Phase<"top_k", [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "logits to expert ids and weights";
  let description = [{
    The formulas of `moe.route`, on memrefs of the same shapes and element types, for `tokens`
    rows of `logits`. Rows from `num_valid_tokens` on, and padding, get ids -1 and weights 0. The order (key descending,
    index ascending) is total, so the result does not depend on the schedule.

    ```mlir
    tile.top_k tokens(%tokens) logits(%logits : memref<?x128xf32>)
        outs(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>)
        <top_k = 8, softmax = all, renormalize = true>
    ```
  }];
  let arguments = (ins
    I64:$tokens,
    Tile_In:$logits, Tile_OptF32In:$selection_bias, Tile_OptF32In:$expert_scale,
    Tile_OptI32In:$input_ids, Tile_OptI32In:$hash_table, Tile_OptI32In:$num_valid_tokens, Tile_OptI8In:$is_padding,
    Tile_I32Out:$ids, Tile_F32Out:$weights,
    Moe_RoutingAttr:$routing, OptionalAttr<Tile_ConfigAttr>:$config);
  let regions = (region AnyRegion:$score, AnyRegion:$weight, AnyRegion:$key);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `logits` `(` $logits `:` type($logits) `)`
    oilist(
        `selection_bias` `(` $selection_bias `:` type($selection_bias) `)`
      | `expert_scale` `(` $expert_scale `:` type($expert_scale) `)`
      | `input_ids` `(` $input_ids `:` type($input_ids) `)`
      | `hash_table` `(` $hash_table `:` type($hash_table) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `is_padding` `(` $is_padding `:` type($is_padding) `)`
    )
    `outs` `(` $ids `,` $weights `:` type($ids) `,` type($weights) `)`
    $routing (`score` custom<ScalarRegion>($score)^)?
    (`key` custom<ScalarRegion>($key)^)?
    (`weight` custom<ScalarRegion>($weight)^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_CountSlotsOp : Tile_Phase<"count_slots"> {
  let summary = "the slots of each expert in each chunk of tokens";
  let description = [{
    Tokens are cut into at most as many chunks as `counts` has rows, C, of equally many tokens but for the last
    chunk: `max(chunk_tokens, ceildiv(tokens, C))`. Row c of `counts` has the number of slots of the tokens of
    chunk c, per local expert (those of `tile.rank`, with the same attributes); tokens from `num_valid_tokens` on
    have none. Rows of chunks without tokens are undefined. A `tile.rank` of the same ids takes the `counts`.

    ```mlir
    tile.count_slots tokens(%tokens) ids(%ids : memref<?x8xi32>) outs(%counts : memref<128x64xi32>)
        {num_experts = 64 : i64, chunk_tokens = 128 : i64}
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_I32In:$ids, Tile_OptI32In:$num_valid_tokens, Tile_I32Out:$counts,
    I64Attr:$num_experts, OptionalAttr<DenseI64ArrayAttr>:$local_experts, I64Attr:$chunk_tokens,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ids` `(` $ids `:` type($ids) `)`
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    `outs` `(` $counts `:` type($counts) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_RankOp : Tile_Phase<"rank", [AttrSizedOperandSegments]> {
  let summary = "a stable counting sort of slots by expert";
  let description = [{
    The formulas of `moe.permute`, on memrefs of the same shapes: `offsets` `(G + 1)`, `position`
    `T x k`, `source` `P`, `row_weight` `P x 1`. A stable counting sort, so bits are equal for every
    schedule by definition. `source` and `row_weight` are undefined from `offsets[G]` on. `counter` becomes
    0: by it one product of a later launch tells the other that it is done.

    `counts` are those that `tile.count_slots` makes of the same ids, with the same `chunk_tokens`. A schedule
    may add them up instead of counting the slots of other chunks. `split-ranking` (`tile-rewrite-launches`) adds them.

    ```mlir
    tile.rank tokens(%tokens) ids(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>)
        outs(%offsets, %position, %source, %row_weight
             : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
        {num_experts = 128 : i64}
    ```
  }];
  let arguments = (ins
    I64:$tokens,
    Tile_I32In:$ids, Tile_F32In:$weights, Tile_OptI32In:$num_valid_tokens, Tile_OptI32In:$counts,
    Tile_I32Out:$offsets, Tile_I32Out:$position, Tile_I32Out:$source, Tile_F32Out:$row_weight,
    Tile_OptI32Out:$counter,
    I64Attr:$num_experts, DefaultValuedAttr<I64Attr, "0">:$num_zero_experts,
    OptionalAttr<DenseI64ArrayAttr>:$local_experts, OptionalAttr<I64Attr>:$chunk_tokens,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ids` `(` $ids `,` $weights `:` type($ids) `,` type($weights) `)`
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`counts` `(` $counts^ `:` type($counts) `)`)?
    `outs` `(` $offsets `,` $position `,` $source `,` $row_weight `:`
    type($offsets) `,` type($position) `,` type($source) `,` type($row_weight) `)`
    (`counter` `(` $counter^ `:` type($counter) `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_ContractOp : Tile_Phase<"contract", [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "a grouped matrix product with an epilogue";
  let description = [{
    The formulas of `moe.grouped_matmul`, on memrefs of the same shapes and element types, with the
    same arguments of the epilogue. With `offsets`, a position p of group g (`offsets[g] <= p <
    offsets[g + 1]`) reads the input row `source[p]`; an empty group costs nothing, and rows from the
    last offset on are undefined. Without, the product is dense over `tokens` rows, and rows from
    `num_valid_tokens` on are written as zeros. Accumulation is f32; the order of summation is the
    schedule's, fixed per config. Of quantized operands `input_quant`, `weight_quant` and `way` say
    what they stand for and which elements share a value of `input_scale` and `weight_scale`; the sum of those that
    share both is scaled in f32 before it is added. The memref of `outs` is no other operand too.

    What `schedule` names changes no result; it is for the schedule that `config` is of:

    - `ids` are those that the offsets come from: `offsets` has what `tile.rank` makes of them, with these
      `num_experts` and `local_experts`, for all tokens. A schedule may count them instead of reading the
      offsets: nothing in a run writes them, so that it need not wait for that. `count-ids` (`tile-rewrite-launches`) adds them.
    - Of two products in one kernel the second multiplies the result of the first: the first one `signals` what
      of it is done, and the second `awaits` all before it reads a row, but not before it reads weights. Both
      name the same counter, `(1)`, which is 0 when the kernel begins. `join-products` (`tile-rewrite-launches`) makes such kernels.
    - A product behind a `tile.quantize` in one kernel, whose rows it multiplies, `awaits` in the same way that all CTAs have
      quantized their share. Its counter is that of its `tickets`, if it has them, and is not 0 when the kernel ends.
      `quantize-inputs` (`tile-rewrite-launches`) makes such kernels.
    - `tickets` is a counter too, of the tiles that CTAs have taken behind their first one: each takes the next there
      is, so that tiles that are read together run at about the same time, however long each takes. It is 0 when the
      kernel begins, and when it ends. `queue-tiles` (`tile-rewrite-launches`) adds it where `config` says `queue`.

    With `result_quant` the result is codes: what the epilogue makes is rounded to `rounded_to` (bf16 or f16), then
    quantized as `tile.quantize` does it by `result_quant`, to e4m3 with scales `result_scale`, or to e4m3 or int8 by
    the scale in `result_tensor_scale`. The bits are those
    of the two phases one after the other. `quantize-results` (`tile-rewrite-launches`) makes such products.

    With `first_column` it computes `num_columns` columns of the result from that one on, a multiple of it, and
    leaves the others as they are: launches for all of them follow one another. `cut-columns` (`tile-rewrite-launches`) makes such products.

    With `group_rows` the product is one of the groups with so many rows: of others it reads nothing, and leaves their
    rows of the result as they are. Two launches then share the groups, and one result, each with a config for its
    own. `split-large-groups` (`tile-rewrite-launches`) makes such products.

    ```mlir
    tile.contract tokens(%tokens) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
        offsets(%offsets : memref<129xi32>) source(%source : memref<?xi32>)
        outs(%h : memref<?x768xbf16>) epilogue {
        ^bb0(%gate: f32, %up: f32):
          %y = arith.mulf %gate, %up : f32
          tile.yield %y : f32
        } {layout = #moe.weight_layout<order = gate_up>,
           config = #tile.cpu_contract<register_rows = 4, register_columns = 4, step = 32, columns_per_cta = 32,
                                         lanes = 16>}
    ```
  }];
  let arguments = (ins
    I64:$tokens,
    Tile_ProductIn:$input, Tile_ProductIn:$weight,
    Tile_OptF32In:$input_scale, Tile_OptScaleIn:$weight_scale,
    Tile_OptZeroIn:$weight_zero_point, Tile_OptF32In:$weight_global_scale,
    Tile_OptI32In:$offsets, Tile_OptI32In:$source, Tile_OptI32In:$ids,
    Tile_OptI32In:$num_valid_tokens, Tile_OptI32InOut:$signals, Tile_OptI32In:$awaits,
    Tile_OptI32InOut:$tickets, Optional<I64>:$first_column,
    Arg<Variadic<MemRefOf<[F32, I8]>>, "read", [MemRead]>:$row_operands,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$column_operands,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$elementwise_operands,
    Tile_OptF32In:$result_tensor_scale,
    Tile_ProductOut:$result, Tile_OptF32Out:$result_scale,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout,
    OptionalAttr<Moe_QuantAttr>:$input_quant, OptionalAttr<Moe_QuantAttr>:$weight_quant,
    OptionalAttr<Moe_WayAttr>:$way,
    OptionalAttr<Moe_QuantAttr>:$result_quant, OptionalAttr<TypeAttrOf<AnyFloat>>:$rounded_to,
    OptionalAttr<I64Attr>:$num_experts,
    OptionalAttr<DenseI64ArrayAttr>:$local_experts,
    OptionalAttr<Tile_GroupRowsAttr>:$group_rows,
    OptionalAttr<I64Attr>:$num_columns,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let regions = (region AnyRegion:$epilogue);
  let extraClassDeclaration = [{
    /// Whether the result is codes.
    bool quantizesResult() { return static_cast<bool>(getResultQuantAttr()); }
    /// Whether groups of any number of rows are the product's.
    bool takesAllGroups() { return !getGroupRows(); }
    /// Whether a group with so many rows is, if it has any.
    bool takesGroup(int64_t rows) {
      GroupRowsAttr bounds = getGroupRowsAttr();
      return !bounds || (rows >= bounds.getMin() && rows <= bounds.getMax());
    }
    // The bounds of `group_rows`; nothing where it has none at that end.
    std::optional<uint64_t> getMinGroupRows();
    std::optional<uint64_t> getMaxGroupRows();
    void setMinGroupRows(int64_t rows);
    void setMaxGroupRows(int64_t rows);
  }];
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $input `,` $weight `:` type($input) `,` type($weight) `)`
    oilist(
        `input_scale` `(` $input_scale `:` type($input_scale) `)`
      | `weight_scale` `(` $weight_scale `:` type($weight_scale) `)`
      | `weight_zero_point` `(` $weight_zero_point `:` type($weight_zero_point) `)`
      | `weight_global_scale` `(` $weight_global_scale `:` type($weight_global_scale) `)`
      | `offsets` `(` $offsets `:` type($offsets) `)`
      | `source` `(` $source `:` type($source) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `schedule` `(` custom<ScheduleOperands>($ids, type($ids), $signals, type($signals), $awaits, type($awaits),
                                                $tickets, type($tickets)) `)`
      | `first_column` `(` $first_column `)`
      | `rows` `(` $row_operands `:` type($row_operands) `)`
      | `columns` `(` $column_operands `:` type($column_operands) `)`
      | `elementwise` `(` $elementwise_operands `:` type($elementwise_operands) `)`
      | `result_tensor_scale` `(` $result_tensor_scale `:` type($result_tensor_scale) `)`
    )
    `outs` `(` $result `:` type($result) `)`
    (`result_scale` `(` $result_scale^ `:` type($result_scale) `)`)?
    (`epilogue` custom<ScalarRegion>($epilogue)^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_RepackOp : Tile_Phase<"repack", [AttrSizedOperandSegments]> {
  let summary = "weights in the order of tensor cores";
  let description = [{
    What `moe.repack` does, on memrefs of the same shapes, of which no two overlap. The token count is not used.

    ```mlir
    tile.repack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
        tokens(%tokens) ins(%w, %s : memref<32x2880x1440xi8>, memref<32x2880x90xf8E8M0FNU>)
        outs(%p, %ps, %r : memref<32x2880x1440xi8>, memref<32x2880x90xi8>, memref<32x2880xf32>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_CodesIn:$weight, Tile_ScaleIn:$scale,
    Tile_OptZeroIn:$zero_point, Tile_OptF32In:$global_scale,
    Tile_I8Out:$packed, Tile_I8Out:$packed_scale, Tile_F32Out:$row_scale,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout, Moe_QuantAttr:$quant,
    DefaultValuedAttr<Moe_PackingAttr, "::moec::moe::Packing::Fragments">:$packing,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    $quant `tokens` `(` $tokens `)` `ins` `(` $weight `,` $scale `:` type($weight) `,` type($scale) `)`
    (`zero_point` `(` $zero_point^ `:` type($zero_point) `)`)?
    (`global_scale` `(` $global_scale^ `:` type($global_scale) `)`)?
    `outs` `(` $packed `,` $packed_scale `,` $row_scale `:`
    type($packed) `,` type($packed_scale) `,` type($row_scale) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_PlaceIdsOp : Tile_Phase<"place_ids", [AttrSizedOperandSegments]> {
  let summary = "ids of experts as those of this rank's weights";
  let description = [{
    The formula of `moe.place_ids`, on memrefs of the same shapes, for `tokens` rows.

    ```mlir
    tile.place_ids tokens(%tokens) ins(%ids : memref<?x8xi32>) table(%t : memref<64xi32>)
        outs(%local : memref<?x8xi32>)
    ```
  }];
  let arguments = (ins I64:$tokens, Tile_I32In:$ids, Tile_OptI32In:$table, Tile_OptI32In:$replica_counts,
                       Tile_OptI32In:$num_valid_tokens, Tile_OptI8In:$is_padding, Tile_I32Out:$result,
                       OptionalAttr<DenseI64ArrayAttr>:$zero_experts, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $ids `:` type($ids) `)` (`table` `(` $table^ `:` type($table) `)`)?
    (`replica_counts` `(` $replica_counts^ `:` type($replica_counts) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`is_padding` `(` $is_padding^ `:` type($is_padding) `)`)?
    `outs` `(` $result `:` type($result) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_RowMapOp : Tile_Phase<"row_map", [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "an elementwise map of rows";
  let description = [{
    The formula of `moe.row_map`, on memrefs of the same shapes, for `tokens` rows.

    ```mlir
    tile.row_map tokens(%tokens) ins(%x : memref<?x2048xbf16>) rows(%w : memref<?x1xf32>)
        outs(%y : memref<?x2048xbf16>) {
        ^bb0(%v: f32, %r: f32):
          %m = arith.mulf %v, %r : f32
          tile.yield %m : f32
        }
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Tile_OptI32In:$num_valid_tokens,
    Arg<Variadic<MemRefOf<[F32]>>, "read", [MemRead]>:$row_operands,
    Arg<Variadic<AnyMemRef>, "read", [MemRead]>:$elementwise_operands,
    Tile_Out:$result, OptionalAttr<Tile_ConfigAttr>:$config);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)`
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`rows` `(` $row_operands^ `:` type($row_operands) `)`)?
    (`elementwise` `(` $elementwise_operands^ `:` type($elementwise_operands) `)`)?
    `outs` `(` $result `:` type($result) `)` custom<ScalarRegion>($body) attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_TensorScaleOp : Tile_Phase<"tensor_scale", [AttrSizedOperandSegments]> {
  let summary = "the scale that all rows of a call share";
  let description = [{
    The formula of `moe.tensor_scale`, on memrefs of the same shapes: the largest magnitude does not depend on the
    order of the rows, so bits are equal for every schedule.

    ```mlir
    tile.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true>
        tokens(%tokens) ins(%h : memref<?x768xbf16>) offsets(%offsets : memref<129xi32>)
        outs(%s : memref<1xf32>) {top_k = 8 : i64}
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Tile_OptI32In:$offsets, Tile_OptI32In:$num_valid_tokens,
    Tile_OptI8In:$is_padding, Tile_F32Out:$scale,
    OptionalAttr<I64Attr>:$top_k, Moe_QuantAttr:$quant,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    $quant `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)`
    oilist(
        `offsets` `(` $offsets `:` type($offsets) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `is_padding` `(` $is_padding `:` type($is_padding) `)`
    )
    `outs` `(` $scale `:` type($scale) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_QuantizeOp : Tile_Phase<"quantize", [AttrSizedOperandSegments]> {
  let summary = "rows as e4m3, by scales of their own or a given one";
  let description = [{
    The formulas of `moe.quantize`, on memrefs of the same shapes: bits are equal for every schedule.
    Without `offsets` for `tokens` rows; with `offsets` for as many rows as the last offset says, at most
    `tokens * top_k`; those from there on are not touched.

    ```mlir
    tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
        tokens(%tokens) ins(%h : memref<?x768xbf16>) offsets(%offsets : memref<129xi32>)
        outs(%q, %s : memref<?x768xf8E4M3FN>, memref<?x6xf32>) {top_k = 8 : i64}
    tile.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor>
        tokens(%tokens) ins(%x : memref<?x2048xbf16>) tensor_scale(%s : memref<1xf32>)
        outs(%q : memref<?x2048xf8E4M3FN>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Tile_OptI32In:$offsets, Tile_OptF32In:$tensor_scale,
    Tile_QuantizedOut:$quantized, Tile_OptF32Out:$scale,
    OptionalAttr<I64Attr>:$top_k, Moe_QuantAttr:$quant,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    $quant `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)`
    oilist(
        `offsets` `(` $offsets `:` type($offsets) `)`
      | `tensor_scale` `(` $tensor_scale `:` type($tensor_scale) `)`
    )
    `outs` `(` $quantized (`,` $scale^)? `:` type($quantized) (`,` type($scale)^)? `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_GatherRowsOp : Tile_Phase<"gather_rows", [AttrSizedOperandSegments]> {
  let summary = "rows in the order of their experts";
  let description = [{
    Row p of each result becomes row `source[p]` of the input of the same number, for as many p as the last of
    `offsets` says, at most `tokens * top_k`; the results' rows from there on are not touched. So a product can
    read what it multiplies by tensor maps. `permute-rows` (`tile-rewrite-launches`) adds it. With `columns`
    (`moe.gather_rows`) an element of a row in expert e is that of the column that `columns[e, c]` says. With these
    alone, without `offsets`, `source` and `top_k`, rows are those of tokens and stay where they are.

    ```mlir
    tile.gather_rows tokens(%tokens) ins(%x : memref<?x4096xbf16>) offsets(%offsets : memref<9xi32>)
        source(%source : memref<?xi32>) outs(%y : memref<?x4096xbf16>) {top_k = 2 : i64}
    tile.gather_rows tokens(%tokens) ins(%x : memref<?x4096xbf16>) columns(%columns : memref<1x4096xi32>)
        outs(%y : memref<?x4096xbf16>)
    ```
  }];
  let arguments = (ins
    I64:$tokens,
    Arg<Variadic<MemRefOf<[F32, BF16, F16, F8E4M3FN]>>, "read", [MemRead]>:$inputs,
    Tile_OptI32In:$offsets, Tile_OptI32In:$source, Tile_OptI32In:$columns,
    Arg<Variadic<MemRefOf<[F32, BF16, F16, F8E4M3FN]>>, "written", [MemWrite]>:$results,
    OptionalAttr<I64Attr>:$top_k, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $inputs `:` type($inputs) `)`
    (`offsets` `(` $offsets^ `:` type($offsets) `)` `source` `(` $source `:` type($source) `)`)?
    (`columns` `(` $columns^ `:` type($columns) `)`)?
    `outs` `(` $results `:` type($results) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_GatherReduceOp : Tile_Phase<"gather_reduce", [AttrSizedOperandSegments]> {
  let summary = "the sum of each token's rows";
  let description = [{
    The formula of `moe.unpermute`, on memrefs of the same shapes: f32, in order of j, rounded once;
    rows from `num_valid_tokens` on are zeros.

    ```mlir
    tile.gather_reduce tokens(%tokens) ins(%rows, %position : memref<?x2048xbf16>, memref<?x8xi32>)
        addend(%shared : memref<?x2048xbf16>) outs(%y : memref<?x2048xbf16>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$rows, Tile_I32In:$position,
    Tile_OptIn:$identity, Tile_OptF32In:$identity_weights, Tile_OptIn:$addend,
    Tile_OptI32In:$num_valid_tokens, Tile_Out:$result, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    `tokens` `(` $tokens `)` `ins` `(` $rows `,` $position `:` type($rows) `,` type($position) `)`
    oilist(
        `identity` `(` $identity `,` $identity_weights `:` type($identity) `,` type($identity_weights) `)`
      | `addend` `(` $addend `:` type($addend) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
    )
    `outs` `(` $result `:` type($result) `)` attr-dict
  }];
  let hasVerifier = 1;
}

#endif
