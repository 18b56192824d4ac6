//===- MoeOps.td - operations of the moe dialect ---------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOEOPS_TD
#define MOEC_DIALECTS_MOE_MOEOPS_TD

include "MoeAttrs.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

class Moe_Op<string mnemonic, list<Trait> traits = []> : Op<Moe_Dialect, mnemonic, traits>;

def Moe_Float : AnyTypeOf<[F32, BF16, F16]>;
def Moe_DataTensor : RankedTensorOf<[F32, BF16, F16]>;
def Moe_WeightTensor : RankedTensorOf<[F32, BF16, F16, F8E4M3FN, F8E5M2, F4E2M1FN, I8, I<4>]>;
def Moe_F32Tensor : RankedTensorOf<[F32]>;
def Moe_I32Tensor : RankedTensorOf<[I32]>;
def Moe_ScaleTensor : RankedTensorOf<[F32, BF16, F8E8M0FNU]>;

def Moe_LayerOp : Moe_Op<"layer", [Pure, AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "a whole Mixture-of-Experts layer";
  let description = [{
    All formulas of docs/layers.md in one op. Shapes, with T tokens, H hidden size, L latent size
    (H without a latent path), E experts, Z zero experts, R = E + Z, k = top_k, I intermediate
    size, N rows of `w13` (2 I if the activation takes gate and up, else I), D the layer dtype:

    | operand | type |
    |---|---|
    | `hidden` | `T x H x D` |
    | exactly one entry: `gate_weight` | `R x H x D`, with optional `gate_bias` `R x f32` |
    | ... or `router_logits` | `T x R x f32` |
    | ... or `topk_ids` and `topk_weights` | `T x k x i32`, `T x k x f32` |
    | `selection_bias`, `expert_scale` | `R x f32` |
    | `input_ids`, `hash_table` | `T x i32`, `V x k x i32`, with `select = hash` |
    | `w13`, `w13_bias`, `w13_scale` | `E x N x L`, `E x N x D`, scales as `weight_quant` says |
    | `w2`, `w2_bias`, `w2_scale` | `E x L x I`, `E x L x D`, likewise |
    | `shared_w13`, `shared_w2`, `shared_gate` | `N_s x H`, `H x S`, `1 x H` |
    | `latent_down`, `latent_up` | `L x H`, `H x L` |
    | `num_valid_tokens` | `1 x i32`: output rows from there on are zero |

    Regions, each ending in `moe.yield` of one f32:
    - `score(logit)`: elementwise part of the score; empty is the identity.
    - `weight(score)`: elementwise weight of a selected score; empty is the identity.
    - `activation(gate, up)` or `activation(x)`: one argument means a layer without gate. Its
      parameters are entries of `activation_params`, read by `moe.param`; every entry must be read.

    -1 and ids out of range (only with `topk_ids` and `hash`) contribute nothing. `weight_on_input`
    needs k = 1. With `entry` ids, `routing` is absent.
  }];
  let arguments = (ins
    Moe_DataTensor:$hidden,
    Optional<Moe_DataTensor>:$gate_weight,
    Optional<Moe_F32Tensor>:$gate_bias,
    Optional<Moe_F32Tensor>:$router_logits,
    Optional<Moe_I32Tensor>:$topk_ids,
    Optional<Moe_F32Tensor>:$topk_weights,
    Optional<Moe_F32Tensor>:$selection_bias,
    Optional<Moe_F32Tensor>:$expert_scale,
    Optional<Moe_I32Tensor>:$input_ids,
    Optional<Moe_I32Tensor>:$hash_table,
    Moe_WeightTensor:$w13,
    Optional<Moe_DataTensor>:$w13_bias,
    Optional<Moe_ScaleTensor>:$w13_scale,
    Moe_WeightTensor:$w2,
    Optional<Moe_DataTensor>:$w2_bias,
    Optional<Moe_ScaleTensor>:$w2_scale,
    Optional<Moe_WeightTensor>:$shared_w13,
    Optional<Moe_ScaleTensor>:$shared_w13_scale,
    Optional<Moe_WeightTensor>:$shared_w2,
    Optional<Moe_ScaleTensor>:$shared_w2_scale,
    Optional<Moe_DataTensor>:$shared_gate,
    Optional<Moe_DataTensor>:$latent_down,
    Optional<Moe_DataTensor>:$latent_up,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    OptionalAttr<Moe_RoutingAttr>:$routing,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout,
    OptionalAttr<Moe_QuantAttr>:$weight_quant,
    OptionalAttr<Moe_QuantAttr>:$activation_quant,
    OptionalAttr<Moe_ActivationFormatAttr>:$format,
    OptionalAttr<Moe_MeshAttr>:$mesh,
    OptionalAttr<Moe_PlacementAttr>:$placement,
    OptionalAttr<DictionaryAttr>:$activation_params,
    DefaultValuedAttr<I64Attr, "0">:$num_zero_experts,
    UnitAttr:$weight_on_input,
    DefaultValuedAttr<I64Attr, "16384">:$max_tokens);
  let results = (outs Moe_DataTensor:$output);
  let regions = (region AnyRegion:$score, AnyRegion:$weight, AnyRegion:$activation);
  let assemblyFormat = [{
    $hidden `:` type($hidden)
    oilist(
        `gate` `(` $gate_weight `:` type($gate_weight) `)`
      | `gate_bias` `(` $gate_bias `:` type($gate_bias) `)`
      | `logits` `(` $router_logits `:` type($router_logits) `)`
      | `ids` `(` $topk_ids `:` type($topk_ids) `)`
      | `weights` `(` $topk_weights `:` type($topk_weights) `)`
      | `selection_bias` `(` $selection_bias `:` type($selection_bias) `)`
      | `expert_scale` `(` $expert_scale `:` type($expert_scale) `)`
      | `input_ids` `(` $input_ids `:` type($input_ids) `)`
      | `hash_table` `(` $hash_table `:` type($hash_table) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `latent_down` `(` $latent_down `:` type($latent_down) `)`
      | `latent_up` `(` $latent_up `:` type($latent_up) `)`
      | `w13_bias` `(` $w13_bias `:` type($w13_bias) `)`
      | `w13_scale` `(` $w13_scale `:` type($w13_scale) `)`
      | `w2_bias` `(` $w2_bias `:` type($w2_bias) `)`
      | `w2_scale` `(` $w2_scale `:` type($w2_scale) `)`
      | `shared_w13` `(` $shared_w13 `:` type($shared_w13) `)`
      | `shared_w13_scale` `(` $shared_w13_scale `:` type($shared_w13_scale) `)`
      | `shared_w2` `(` $shared_w2 `:` type($shared_w2) `)`
      | `shared_w2_scale` `(` $shared_w2_scale `:` type($shared_w2_scale) `)`
      | `shared_gate` `(` $shared_gate `:` type($shared_gate) `)`
    )
    `experts` `(` $w13 `,` $w2 `:` type($w13) `,` type($w2) `)`
    (`score` $score^)? (`weight` $weight^)? `activation` $activation
    attr-dict `->` type($output)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Number of experts whose weights are here.
    int64_t getNumLocalExperts();
    /// Number of experts of the whole layer without zero experts (E).
    int64_t getNumExperts();
    /// Rows of the router: E + Z.
    int64_t getNumRouted();
    int64_t getTopK();
    int64_t getHiddenSize();
    /// Width that routed experts see: the latent size, else the hidden size.
    int64_t getExpertWidth();
    int64_t getIntermediateSize();
    /// Whether the activation takes a gate and an up value.
    bool isGated() { return getActivation().getNumArguments() == 2; }
  }];
}

def Moe_ParamOp : Moe_Op<"param", [Pure]> {
  let summary = "a parameter of the activation";
  let description = [{
    The f32 entry `name` of the `activation_params` dictionary of the op that holds the region.
    `moe-decompose` replaces it by the constant. `%l = moe.param "limit"`.
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs F32:$value);
  let assemblyFormat = "$name attr-dict";
  let hasVerifier = 1;
}

def Moe_YieldOp : Moe_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["LayerOp", "RouteOp", "GroupedMatmulOp", "RowMapOp"]>]> {
  let summary = "ends a scalar region";
  let description = "The f32 value of a score, weight, activation or epilogue region.";
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Moe_RouteOp : Moe_Op<"route", [Pure, AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "scores to expert ids and weights";
  let description = [{
    docs/layers.md, formulas 2 to 5, on logits `T x R x f32`. Ids are `T x k x i32`, weights
    `T x k x f32`. Rows from `num_valid_tokens` on get ids -1 and weights 0. With `select = hash` the
    ids are rows of `hash_table` and no selection runs.
  }];
  let arguments = (ins
    Moe_F32Tensor:$logits,
    Optional<Moe_F32Tensor>:$selection_bias,
    Optional<Moe_F32Tensor>:$expert_scale,
    Optional<Moe_I32Tensor>:$input_ids,
    Optional<Moe_I32Tensor>:$hash_table,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Moe_RoutingAttr:$routing);
  let results = (outs Moe_I32Tensor:$ids, Moe_F32Tensor:$weights);
  let regions = (region AnyRegion:$score, AnyRegion:$weight);
  let assemblyFormat = [{
    $logits `:` type($logits)
    oilist(
        `selection_bias` `(` $selection_bias `:` type($selection_bias) `)`
      | `expert_scale` `(` $expert_scale `:` type($expert_scale) `)`
      | `input_ids` `(` $input_ids `:` type($input_ids) `)`
      | `hash_table` `(` $hash_table `:` type($hash_table) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
    )
    $routing (`score` $score^)? (`weight` $weight^)?
    attr-dict `->` type($ids) `,` type($weights)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_PermuteOp : Moe_Op<"permute", [Pure]> {
  let summary = "slots sorted by expert, stably";
  let description = [{
    A slot is a pair (token t, choice j). Valid slots (docs/layers.md, formula 6) of an expert whose
    weights are here get positions `0, 1, ...` sorted by local expert, inside an expert by
    (t, j). Results, with G local experts and P = T * k:

    - `offsets` `(G + 1) x i32`: expert g has positions `offsets[g] .. offsets[g + 1] - 1`.
    - `position` `T x k x i32`: the slot's position; -1 if it contributes nothing; -2 if it chose a
      zero expert (id in `num_experts .. num_experts + num_zero_experts - 1`).
    - `source` `P x i32`: the token of a position; undefined from `offsets[G]` on.
    - `row_weight` `P x 1 x f32`: the slot's weight at a position; likewise.

    `local_experts` lists the global ids whose weights are here; absent means all `num_experts`.
  }];
  let arguments = (ins
    Moe_I32Tensor:$ids,
    Moe_F32Tensor:$weights,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    I64Attr:$num_experts,
    DefaultValuedAttr<I64Attr, "0">:$num_zero_experts,
    OptionalAttr<DenseI64ArrayAttr>:$local_experts);
  let results = (outs Moe_I32Tensor:$offsets, Moe_I32Tensor:$position, Moe_I32Tensor:$source,
                      Moe_F32Tensor:$row_weight);
  let assemblyFormat = [{
    $ids `,` $weights (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    attr-dict `:` type($ids) `,` type($weights) `->` type(results)
  }];
  let hasVerifier = 1;
}

def Moe_GroupedMatmulOp : Moe_Op<"grouped_matmul", [Pure, AttrSizedOperandSegments,
    IsolatedFromAbove]> {
  let summary = "matrix products of row groups with their weights, and an epilogue";
  let description = [{
    Position p of group g (`offsets[g] <= p < offsets[g + 1]`) reads row `source[p]` of `input`
    (row p without `source`):

    `acc[n] = sum_k input[row, k] * weight[g, n, k]` in f32,
    `result[p, n] = cast(epilogue(acc[n], row_operands[p]..., column_operands[g, n]...,
    elementwise_operands[p, n]...))`.

    Without `offsets` the product is dense: one group of all rows, `weight` is `N x K`, column
    operands `N`. With `layout` the N weight rows are I pairs (gate, up): the epilogue gets two
    accumulators and two values per column operand, and the result has I columns. Rows from
    `num_valid_tokens` on (dense only) are zero. An empty epilogue yields its accumulator.
    Operands are extended to f32 before the region; `row_operands` are `P x 1 x f32`.
  }];
  let arguments = (ins
    Moe_DataTensor:$input,
    Moe_DataTensor:$weight,
    Optional<Moe_I32Tensor>:$offsets,
    Optional<Moe_I32Tensor>:$source,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Variadic<Moe_F32Tensor>:$row_operands,
    Variadic<RankedTensorOf<[F32, BF16, F16]>>:$column_operands,
    Variadic<Moe_DataTensor>:$elementwise_operands,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout);
  let results = (outs RankedTensorOf<[F32, BF16, F16]>:$result);
  let regions = (region AnyRegion:$epilogue);
  let assemblyFormat = [{
    $input `,` $weight `:` type($input) `,` type($weight)
    oilist(
        `offsets` `(` $offsets `:` type($offsets) `)`
      | `source` `(` $source `:` type($source) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `rows` `(` $row_operands `:` type($row_operands) `)`
      | `columns` `(` $column_operands `:` type($column_operands) `)`
      | `elementwise` `(` $elementwise_operands `:` type($elementwise_operands) `)`
    )
    (`epilogue` $epilogue^)? attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_RowMapOp : Moe_Op<"row_map", [Pure, IsolatedFromAbove]> {
  let summary = "an elementwise map of rows";
  let description = [{
    `result[t, c] = cast(body(input[t, c], row_operands[t]...))`, on f32. Llama 4's weight on the
    input is `body(x, w) = x * w`.
  }];
  let arguments = (ins Moe_DataTensor:$input, Variadic<Moe_F32Tensor>:$row_operands);
  let results = (outs Moe_DataTensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $input `:` type($input) (`rows` `(` $row_operands^ `:` type($row_operands) `)`)?
    $body attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_UnpermuteOp : Moe_Op<"unpermute", [Pure, AttrSizedOperandSegments]> {
  let summary = "the sum of each token's expert rows";
  let description = [{
    In f32 and in order of j:
    `r[t] = sum_j position[t, j] >= 0 ? rows[position[t, j]] : position[t, j] == -2 ?
    identity_weights[t, j] * identity[t] : nothing`;
    `result[t] = cast(r[t] + addend[t])`. Rows from `num_valid_tokens` on are zero.
    `identity` (`T x L x D`) and `identity_weights` (`T x k x f32`) come with zero experts.
  }];
  let arguments = (ins
    Moe_DataTensor:$rows,
    Moe_I32Tensor:$position,
    Optional<Moe_DataTensor>:$identity,
    Optional<Moe_F32Tensor>:$identity_weights,
    Optional<Moe_DataTensor>:$addend,
    Optional<Moe_I32Tensor>:$num_valid_tokens);
  let results = (outs Moe_DataTensor:$result);
  let assemblyFormat = [{
    $rows `,` $position `:` type($rows) `,` type($position)
    oilist(
        `identity` `(` $identity `,` $identity_weights `:` type($identity) `,` type($identity_weights) `)`
      | `addend` `(` $addend `:` type($addend) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
    )
    attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif
