//===- TileOps.td - operations of the tile dialect -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILEOPS_TD
#define MOEC_DIALECTS_TILE_TILEOPS_TD

include "TileConfigBase.td"
include "TileDialect.td"
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
def Tile_OptIdIn : Arg<Optional<MemRefOf<[I32, I16, I8]>>, "read", [MemRead]>;
def Tile_OptIdOut : Arg<Optional<MemRefOf<[I32, I16, I8]>>, "written", [MemWrite]>;
def Tile_OptI8In : Arg<Optional<MemRefOf<[I8]>>, "read", [MemRead]>;
def Tile_OptF32Out : Arg<Optional<MemRefOf<[F32]>>, "written", [MemWrite]>;
def Tile_QuantizedOut : Arg<MemRefOf<[F8E4M3FN, I8, BF16]>, "written", [MemWrite]>;
def Tile_QuantizedIn : Arg<MemRefOf<[I8, F8E4M3FN]>, "read", [MemRead]>;
def Tile_I8Out : Arg<MemRefOf<[I8]>, "written", [MemWrite]>;
def Tile_F32Out : Arg<MemRefOf<[F32]>, "written", [MemWrite]>;

def Tile_TensorMapArrayAttr : TypedArrayAttrBase<Tile_TensorMapAttr, "array of #tile.tensor_map">;

def Tile_KernelOp : Tile_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a kernel: a sequence of phases";
  let description = [{
    Arguments are memrefs (row-major without gaps, at most the first dimension dynamic; weights also with gaps between
    their rows, `strided<[?, ..., 1]>`) and, last, the token count as i64. A kernel that is launched for some columns
    at a time takes the first column, an i64, before the token count. There are no results.

    Each op of the body is a phase on the token count and memrefs of the kernel. A phase starts when the one before is
    complete on all CTAs, with three exceptions. A gemm may `await` what another gemm or a quantization `signals`
    (`tile.gemm`): each CTA goes on to it as soon as its own share of the other phase is done, copies weights at
    once, and copies rows when all CTAs have signaled. A `tile.gather_reduce` may `await` the gemm before it: CTAs
    with a share of the sums wait until all CTAs have signaled. On a GPU, a CTA also goes on from a `tile.top_k` to the phase
    that counts or sorts its slots if that needs only the CTA's own share of the routing. The body is one block that
    ends in `tile.return`. `tile-split-phases` splits kernels into one launch per phase if the target cannot order
    phases inside a kernel.

    `tile-assign-config` sets a `config` on each phase, and from these `grid`, the number of CTAs; for a GPU also
    `block`, the threads of a CTA, `shared`, its bytes of dynamic shared memory, and `tensor_maps`, the maps that a
    launch passes after the arguments. `load`, from `tile-specialize`, holds the token counts that the kernel is
    launched for. `form` says how it runs beside other kernels: an `independent` kernel waits for earlier launches
    only at its end (docs/design/lowering-to-gpu.md), set by `tile-find-independent`; a device refuses a `resident` kernel if it cannot
    run all CTAs at once; a kernel that quantizes `ahead` and then routes does not write in its first phase what a
    later phase reads. `private_rows` has a number per argument: if it is not 0, each CTA has that many rows of the
    argument in memory of its own. Each CTA then runs the phases that write such arguments as if it were the only one,
    and one CTA copies its rows to the memory that is passed. `join-routing` (`tile-rewrite-launches`) sets it.

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
                       OptionalAttr<DenseI64ArrayAttr>:$private_rows,
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
    /// The first column, the argument before the token count; null if a launch computes all columns.
    ::mlir::Value getFirstColumn();
    /// Rows of an argument in memory of each CTA; 0 if CTAs share the argument.
    int64_t getPrivateRowsOf(::mlir::Value argument);
    // Fields of `form`; false without it.
    bool getIndependent() { return getFormAttr() && getFormAttr().getIndependent(); }
    bool getAhead() { return getFormAttr() && getFormAttr().getAhead(); }
    bool getResident() { return getFormAttr() && getFormAttr().getResident(); }
    bool getLate() { return getFormAttr() && getFormAttr().getLate(); }
    void setIndependent(bool independent) { setForm(independent, getAhead(), getResident(), getLate()); }
    void setAhead(bool ahead) { setForm(getIndependent(), ahead, getResident(), getLate()); }
    void setResident(bool resident) { setForm(getIndependent(), getAhead(), resident, getLate()); }
    void setLate(bool late) { setForm(getIndependent(), getAhead(), getResident(), late); }

  private:
    void setForm(bool independent, bool ahead, bool resident, bool late);

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
    ParentOneOf<["TopKOp", "GemmOp", "RowMapOp"]>]> {
  let summary = "ends a scalar region";
  let description = [{
    Returns the f32 result of a scalar region.

    ```mlir
    tile.yield %y : f32
    ```
  }];
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Tile_TopKOp : Tile_Phase<"top_k", [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "choice of expert ids and weights by logits";
  let description = [{
    The formulas of `moe.route`, on memrefs of the same shapes and element types, for `tokens` rows of `logits`. Rows
    from `num_valid_tokens` on and padding get ids -1 and weights 0. The order (key descending, index ascending) is
    total, so the result does not depend on the schedule.

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
    Tile_OptIdIn:$given_ids, Tile_I32Out:$ids, Tile_F32Out:$weights, Tile_OptIdOut:$recorded_ids,
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
      | `given` `(` $given_ids `:` type($given_ids) `)`
    )
    `outs` `(` $ids `,` $weights `:` type($ids) `,` type($weights) `)`
    (`record` `(` $recorded_ids^ `:` type($recorded_ids) `)`)? $routing (`score` custom<ScalarRegion>($score)^)?
    (`key` custom<ScalarRegion>($key)^)?
    (`weight` custom<ScalarRegion>($weight)^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_CountSlotsOp : Tile_Phase<"count_slots"> {
  let summary = "number of slots per expert and chunk of tokens";
  let description = [{
    Tokens are split into at most C chunks, with C the rows of `counts`. Each chunk but the last has
    `max(chunk_tokens, ceildiv(tokens, C))` tokens. Row c of `counts` has the number of slots of chunk c per local
    expert (those of `tile.sort_by_expert`, with the same attributes). Tokens from `num_valid_tokens` on have none. Rows of
    chunks without tokens are undefined. A `tile.sort_by_expert` of the same ids takes the `counts`.

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

def Tile_SortByExpertOp : Tile_Phase<"sort_by_expert", [AttrSizedOperandSegments]> {
  let summary = "a stable counting sort of slots by expert";
  let description = [{
    The formulas of `moe.permute`, on memrefs of the same shapes: `offsets` `(G + 1)`, `position` `T x k`, `source`
    `P`, `row_weight` `P x 1`. The sort is stable, so bits are equal for every schedule by definition. `source` and
    `row_weight` are undefined from `offsets[G]` on. `counter` is set to 0: in a later launch one gemm signals through
    it to the other.

    `counts` are the result of `tile.count_slots` for the same ids and `chunk_tokens`. A schedule may add them up
    instead of counting the slots of other chunks. `split-sort` (`tile-rewrite-launches`) adds the operand.

    ```mlir
    tile.sort_by_expert tokens(%tokens) ids(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>)
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

def Tile_GemmOp : Tile_Phase<"gemm", [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "grouped or dense gemm with an epilogue";
  let description = [{
    The formulas of `moe.grouped_matmul`, on memrefs of the same shapes and element types, with the same epilogue
    arguments. With `offsets`, a position p of group g (`offsets[g] <= p < offsets[g + 1]`) reads the input row
    `source[p]`; an empty group costs nothing, and rows from the last offset on are undefined. Without `offsets`, the
    gemm is dense over `tokens` rows, and rows from `num_valid_tokens` on are written as zeros. Accumulation is f32;
    the order of summation is the schedule's, fixed per config. For quantized operands, `input_quant`, `weight_quant`
    and `strategy` describe the elements and which of them share a value of `input_scale` and `weight_scale`; the sum of
    elements that share both is scaled in f32 before it is added. The memref of `outs` is not another operand as well.

    Operands of `schedule` do not change the result; the schedule of `config` uses them:

    - `ids`: the ids that `offsets` come from by `tile.sort_by_expert` with these `num_experts` and `local_experts`, for all
      tokens. A schedule may count them instead of reading the offsets. Nothing in a run writes them, so the gemm need
      not wait for the sort. `count-ids` (`tile-rewrite-launches`) adds them.
    - `signals`, `awaits`: if the second gemm of a kernel multiplies the result of the first, the first `signals` how
      much of it is done, and the second `awaits` all of it before it reads a row, but not before it reads weights.
      Both name the same counter, `(1)`, which is 0 when the kernel begins. `join-products` (`tile-rewrite-launches`)
      makes such kernels. The last gemm `signals` to a `tile.gather_reduce` behind it by the counter that it has
      already, or by one of its own (`join-sums`).
    - `awaits` after a `tile.quantize` in the same kernel, whose rows the gemm multiplies: it waits in the same way
      until all CTAs have quantized their share. The counter is its `tile_counter`, if it has one, and is not 0
      when the kernel ends. `quantize-inputs` (`tile-rewrite-launches`) makes such kernels.
    - `awaits` of a gemm with `shrunk` rows, alone in its kernel: a `tile.lora_shrink` in the launch before `signals`,
      by the highest bit of the counter, that the launches before it have ended. The gemm awaits the bit before it reads
      rows. It waits for the shrink's launch only before it reads `shrunk` and before its first store. The counter is its
      `tile_counter`, if it has one. `await-rows` (`tile-rewrite-launches`) makes such gemms.
    - `tile_counter`: a counter of the tiles that CTAs have taken after their first one. Each CTA takes the next tile, so
      that tiles which share data run at about the same time, however long each takes. The counter is 0 when the
      kernel begins and when it ends. `dynamic-scheduler` (`tile-rewrite-launches`) adds it if `config` has `dynamic_scheduler`.
    - `cleared`: a counter that is set to 0 for later launches, as by `tile.sort_by_expert` (`join-routing`).

    With `result_quant` the result is quantized: the epilogue's output is rounded to `rounded_to` (bf16 or f16), then
    quantized as by `tile.quantize` with `result_quant`, to e4m3 with scales in `result_scale`, or to e4m3 or int8
    with the scale in `result_tensor_scale`. The bits equal those of the two phases in sequence. `quantize-results`
    (`tile-rewrite-launches`) makes such gemms.

    With `quantizes_input` rows of the input are bf16 or f16: the gemm quantizes those that it multiplies, as
    `tile.quantize` does with `input_quant`, and only a scale of all rows is in memory (`input_scale`). The bits equal
    those of the two phases in sequence. `quantize-rows` (`tile-rewrite-launches`) makes such gemms.

    Where `shrunk` has the element type of `b`, as `append-adapters` (`tile-rewrite-launches`) makes it, a schedule may
    multiply it by `b` as further columns of the input, and add to the same sums.

    With `first_column` the gemm computes only `num_columns` columns of the result from that one on, which is a
    multiple of `num_columns`. Consecutive launches compute all columns. `split-columns` (`tile-rewrite-launches`) makes
    such gemms.

    With `sum_order` only configs that add in that order are legal. `tile-fix-sum-orders` sets it in batch-invariant
    programs.

    With `group_rows` the gemm computes only the groups with that many rows: it reads nothing of other groups and does
    not write their rows of the result. Two launches then share the groups and the result, each with its own config.
    `split-large-groups` (`tile-rewrite-launches`) makes such gemms.

    ```mlir
    tile.gemm tokens(%tokens) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
        offsets(%offsets : memref<129xi32>) source(%source : memref<?xi32>)
        outs(%h : memref<?x768xbf16>) epilogue {
        ^bb0(%gate: f32, %up: f32):
          %y = arith.mulf %gate, %up : f32
          tile.yield %y : f32
        } {layout = #moe.weight_layout<order = gate_up>,
           config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 32,
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
    Tile_OptI32InOut:$tile_counter, Tile_OptI32Out:$cleared, Optional<I64>:$first_column,
    Arg<Variadic<MemRefOf<[F32, I8]>>, "read", [MemRead]>:$row_operands,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$column_operands,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$elementwise_operands,
    Tile_OptIn:$shrunk, Tile_OptI32In:$adapters,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$matrices,
    Tile_OptF32In:$result_tensor_scale,
    Tile_ProductOut:$result, Tile_OptF32Out:$result_scale,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout,
    OptionalAttr<Moe_QuantAttr>:$input_quant, OptionalAttr<Moe_QuantAttr>:$weight_quant,
    OptionalAttr<Moe_StrategyAttr>:$strategy,
    UnitAttr:$quantizes_input,
    OptionalAttr<Moe_QuantAttr>:$result_quant, OptionalAttr<TypeAttrOf<AnyFloat>>:$rounded_to,
    OptionalAttr<I64Attr>:$num_experts,
    OptionalAttr<DenseI64ArrayAttr>:$local_experts,
    OptionalAttr<Tile_GroupRowsAttr>:$group_rows,
    OptionalAttr<I64Attr>:$num_columns,
    OptionalAttr<Tile_SumOrderAttr>:$sum_order,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let regions = (region AnyRegion:$epilogue);
  let extraClassDeclaration = [{
    /// Whether the result is quantized.
    bool quantizesResult() { return static_cast<bool>(getResultQuantAttr()); }
    /// Whether the gemm computes groups of any number of rows.
    bool takesAllGroups() { return !getGroupRows(); }
    /// Whether the gemm computes groups of `rows` rows; groups without rows need no gemm.
    bool takesGroup(int64_t rows) {
      GroupRowsAttr bounds = getGroupRowsAttr();
      return !bounds || (rows >= bounds.getMin() && rows <= bounds.getMax());
    }
    // Bounds of `group_rows`; nothing if unbounded at that end.
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
                                                $tile_counter, type($tile_counter), $cleared, type($cleared)) `)`
      | `first_column` `(` $first_column `)`
      | `rows` `(` $row_operands `:` type($row_operands) `)`
      | `columns` `(` $column_operands `:` type($column_operands) `)`
      | `elementwise` `(` $elementwise_operands `:` type($elementwise_operands) `)`
      | `shrunk` `(` $shrunk `:` type($shrunk) `)`
      | `adapters` `(` $adapters `:` type($adapters) `)`
      | `b` `(` $matrices `:` type($matrices) `)`
      | `result_tensor_scale` `(` $result_tensor_scale `:` type($result_tensor_scale) `)`
    )
    `outs` `(` $result `:` type($result) `)`
    (`result_scale` `(` $result_scale^ `:` type($result_scale) `)`)?
    (`epilogue` custom<ScalarRegion>($epilogue)^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_PrepackOp : Tile_Phase<"prepack", [AttrSizedOperandSegments]> {
  let summary = "weights prepacked in the order of tensor cores";
  let description = [{
    `moe.prepack` on memrefs of the same shapes, none of which overlap. The token count is not used.

    ```mlir
    tile.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
        tokens(%tokens) ins(%w, %s : memref<32x2880x1440xi8>, memref<32x2880x90xf8E8M0FNU>)
        outs(%p, %ps, %r : memref<32x2880x1440xi8>, memref<32x2880x90xi8>, memref<32x2880xf32>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_QuantizedIn:$weight, Tile_ScaleIn:$scale,
    Tile_OptZeroIn:$zero_point, Tile_OptF32In:$global_scale,
    Tile_I8Out:$packed, Tile_I8Out:$packed_scale, Tile_F32Out:$row_scale,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout, Moe_QuantAttr:$quant,
    DefaultValuedAttr<Moe_PackingAttr, "::moec::moe::Packing::Prepacked">:$packing,
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
  let summary = "global to local expert ids";
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

def Tile_RmsNormOp : Tile_Phase<"rms_norm", [AttrSizedOperandSegments]> {
  let summary = "an RMS norm of rows";
  let description = [{
    The formula of `moe.rms_norm`, on memrefs of the same shapes. Without `offsets`, it normalizes `tokens` rows. With
    `offsets`, it normalizes rows up to the last offset, at most `tokens * top_k`, and does not write rows from there
    on.

    ```mlir
    tile.rms_norm <epsilon = 1.0e-5 : f32> tokens(%tokens) ins(%x : memref<?x3584xbf16>)
        weight(%w : memref<3584xbf16>) outs(%y : memref<?x3584xbf16>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Tile_In:$weight, Tile_OptF32In:$row_weight, Tile_OptI32In:$offsets,
    Tile_Out:$result, OptionalAttr<I64Attr>:$top_k, Moe_NormAttr:$norm, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    $norm `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)` `weight` `(` $weight `:` type($weight) `)`
    (`rows` `(` $row_weight^ `:` type($row_weight) `)`)?
    (`offsets` `(` $offsets^ `:` type($offsets) `)`)?
    `outs` `(` $result `:` type($result) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_LoraShrinkOp : Tile_Phase<"lora_shrink", [AttrSizedOperandSegments]> {
  let summary = "rows times the first matrices of their adapters";
  let description = [{
    The formula of `moe.lora_shrink`, on memrefs of the same shapes, for rows up to the last offset, at most
    `tokens * top_k`; rows from there on are not written. The result is f32, or each number is
    the sum of two of the element type of `a`: rows have all high ones, then all low ones.

    With `signals` the launch sets the highest bit of that counter as soon as the launches before it have ended. A
    `tile.gemm` that `awaits` it begins with its rows by then. `await-rows` (`tile-rewrite-launches`) adds the operand.

    ```mlir
    tile.lora_shrink gather tokens(%tokens) ins(%x : memref<?x2048xbf16>) a(%a : memref<4x128x16x2048xbf16>)
        offsets(%offsets : memref<129xi32>) source(%source : memref<?xi32>) adapter_ids(%ids : memref<?xi32>)
        outs(%s, %adapter : memref<?x16xf32>, memref<?x1xi32>) {top_k = 8 : i64}
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$matrices,
    Tile_I32In:$offsets, Tile_I32In:$source, Tile_I32In:$adapter_ids, Tile_Out:$result, Tile_I32Out:$adapter,
    Tile_OptI32InOut:$signals, UnitAttr:$gather, I64Attr:$top_k, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    (`gather` $gather^)? `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)`
    `a` `(` $matrices `:` type($matrices) `)` `offsets` `(` $offsets `:` type($offsets) `)`
    `source` `(` $source `:` type($source) `)` `adapter_ids` `(` $adapter_ids `:` type($adapter_ids) `)`
    `outs` `(` $result `,` $adapter `:` type($result) `,` type($adapter) `)`
    (`signals` `(` $signals^ `:` type($signals) `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_LoraUpdateOp : Tile_Phase<"lora_update", [AttrSizedOperandSegments]> {
  let summary = "what adapters add to the sums of a gemm";
  let description = [{
    Result i is what a gemm computes from `b[i]` and the rows of a `tile.lora_shrink` by `a[i]`, with the same `offsets`,
    `source` and `adapter_ids`: `sum_j (sum_k x[k] a_i[adapter, g, j, k]) b_i[adapter, g, n, j]`, zeros for rows without
    an adapter. The inner sums may be kept as sums of two numbers of the element type of `a`. Rows from the last offset
    on are not written. A gemm takes the results as `elementwise`. `expand-adapters` (`tile-rewrite-launches`) adds it.

    ```mlir
    tile.lora_update gather tokens(%tokens) ins(%x : memref<?x2048xbf16>) a(%a : memref<4x128x16x2048xbf16>)
        b(%b : memref<4x128x768x16xbf16>) offsets(%offsets : memref<129xi32>) source(%source : memref<?xi32>)
        adapter_ids(%ids : memref<?xi32>) outs(%u : memref<?x768xf32>) {top_k = 8 : i64}
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$input, Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$matrices,
    Arg<Variadic<MemRefOf<[F32, BF16, F16]>>, "read", [MemRead]>:$second,
    Tile_I32In:$offsets, Tile_I32In:$source, Tile_I32In:$adapter_ids,
    Arg<Variadic<MemRefOf<[F32]>>, "written", [MemWrite]>:$results, UnitAttr:$gather,
    I64Attr:$top_k, OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    (`gather` $gather^)? `tokens` `(` $tokens `)` `ins` `(` $input `:` type($input) `)`
    `a` `(` $matrices `:` type($matrices) `)` `b` `(` $second `:` type($second) `)`
    `offsets` `(` $offsets `:` type($offsets) `)` `source` `(` $source `:` type($source) `)`
    `adapter_ids` `(` $adapter_ids `:` type($adapter_ids) `)` `outs` `(` $results `:` type($results) `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Tile_TensorScaleOp : Tile_Phase<"tensor_scale", [AttrSizedOperandSegments]> {
  let summary = "dynamic scale shared by all rows of a call";
  let description = [{
    The formula of `moe.tensor_scale`, on memrefs of the same shapes. The largest magnitude does not depend on the
    order of rows, so bits are equal for every schedule.

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
  let summary = "quantization of rows to e4m3 with dynamic scales or a given one";
  let description = [{
    The formulas of `moe.quantize`, on memrefs of the same shapes; bits are equal for every schedule. Without
    `offsets`, it quantizes `tokens` rows. With `offsets`, it quantizes rows up to the last offset, at most
    `tokens * top_k`, and does not write rows from there on.

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
  let summary = "gather of rows by expert";
  let description = [{
    Row p of each result is row `source[p]` of the corresponding input, for p up to the last of `offsets`, at most
    `tokens * top_k`; rows from there on are not written. A gemm can then load its rows by tensor maps. `permute-rows`
    (`tile-rewrite-launches`) adds it. With `columns` (`moe.gather_rows`), an element of column c of a row of expert e
    is taken from column `columns[e, c]`. With `columns` alone, without `offsets`, `source` and `top_k`, rows are
    those of tokens, in their order.

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
  let summary = "combine: the sum of each token's rows";
  let description = [{
    The formula of `moe.unpermute`, on memrefs of the same shapes: f32, in order of j, rounded once;
    rows from `num_valid_tokens` on are zeros. `unreduced` and `from_unreduced` as there. `awaits` is the counter by
    which the gemm before it in the kernel `signals` that its rows are complete.

    ```mlir
    tile.gather_reduce tokens(%tokens) ins(%rows, %position : memref<?x2048xbf16>, memref<?x8xi32>)
        addend(%shared : memref<?x2048xbf16>) outs(%y : memref<?x2048xbf16>)
    ```
  }];
  let arguments = (ins
    I64:$tokens, Tile_In:$rows, Tile_I32In:$position,
    Tile_OptIn:$identity, Tile_OptF32In:$identity_weights, Tile_OptIn:$addend,
    Tile_OptI32In:$num_valid_tokens, Tile_OptI32In:$awaits, Tile_Out:$result, UnitAttr:$unreduced,
    UnitAttr:$from_unreduced,
    OptionalAttr<Tile_ConfigAttr>:$config);
  let assemblyFormat = [{
    (`unreduced` $unreduced^)? (`from_unreduced` $from_unreduced^)?
    `tokens` `(` $tokens `)` `ins` `(` $rows `,` $position `:` type($rows) `,` type($position) `)`
    oilist(
        `identity` `(` $identity `,` $identity_weights `:` type($identity) `,` type($identity_weights) `)`
      | `addend` `(` $addend `:` type($addend) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `awaits` `(` $awaits `:` type($awaits) `)`
    )
    `outs` `(` $result `:` type($result) `)` attr-dict
  }];
  let extraClassDeclaration = [{
    /// Columns of one slot's row.
    int64_t getSlotColumns() {
      return ::llvm::cast<::mlir::MemRefType>((getUnreduced() ? getRows() : getResult()).getType()).getDimSize(1);
    }
  }];
  let hasVerifier = 1;
}

#endif
