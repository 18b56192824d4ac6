//===- MoeOps.td - pipeline ops of the moe dialect -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOEOPS_TD
#define MOEC_DIALECTS_MOE_MOEOPS_TD

include "MoeLayerOp.td"
include "mlir/IR/OpAsmInterface.td"

/// Prints the result under the name in the op's attribute `moe.name`, if any.
def Moe_NamedResult : DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>;

def Moe_RouteOp : Moe_Op<"route", [Pure, AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "choice of expert ids and weights by scores";
  let description = [{
    Formulas 2 to 5 of docs/use/layers.md. With T tokens, R experts, k = `top_k` and V the vocabulary size:

    | operand, result | type |
    |---|---|
    | `logits` | `T x R`, of `f32`, `bf16` or `f16`, read as f32 |
    | `selection_bias`, `expert_scale` | `R x f32` |
    | `input_ids`, `hash_table` | `T x i32`, `V x k x i32`; both or none, with `select = hash` |
    | `num_valid_tokens` | `1 x i32` |
    | `is_padding` | `T x i8` |
    | `given_ids` | `T x k`, of `i32`, `i16`, or `i8` without a sign |
    | `ids`, `weights` | `T x k x i32`, `T x k x f32` |
    | `recorded_ids` | the ids once more, of `i16`, or `i8` without a sign |

    `score(logit)`, `key(v, selection_bias)` (`key(v)` without the bias) and `weight(score)` are scalar regions. Empty
    regions are the identity, and the sum of both arguments for `key`. Per token:

    1. `v = score(logits)`; with `softmax = all`, then a softmax over all R.
    2. `c = key(v, selection_bias)`, f32; `nonfinite` replaces values that are not finite.
    3. `ids`: the k experts that `select` takes by c, in descending order of c, ties to the lowest id.
    4. `w = weight(v[ids])`; with `softmax = selected`, then a softmax over the k; with `renormalize`, divided by
       `sum(w) + renormalize_epsilon` (by 1 if that is 0 or not finite); times `expert_scale[ids]`, times `scale`. All
       in f32.

    Edge cases: rows from `num_valid_tokens` on and rows with `is_padding` not 0 get ids -1 and weights 0. With
    `nonfinite = neg_inf`, a row without any finite key gets the ids `0 .. k - 1` and the final weights `1 / k`. With
    `select = hash`, ids are rows of the table and nothing is selected; an `input_ids` outside the table gives -1, and
    ids out of range get weight 0. With `sparsemixer` the regions are empty: it defines the weights itself.
    With `given_ids`, these replace the ids of step 3, out of range -1. Where they equal the selection, weights have the
    bits that they have without `given_ids`.

    ```mlir
    %ids, %weights = moe.route %logits : tensor<?x128xf32> selection_bias(%b : tensor<128xf32>)
        <top_k = 8, renormalize = true> score {
        ^bb0(%l: f32):
          %s = math.absf %l : f32
          moe.yield %s : f32
        } -> tensor<?x8xi32>, tensor<?x8xf32>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$logits,
    Optional<Moe_F32Tensor>:$selection_bias,
    Optional<Moe_F32Tensor>:$expert_scale,
    Optional<Moe_I32Tensor>:$input_ids,
    Optional<Moe_I32Tensor>:$hash_table,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Optional<Moe_ByteTensor>:$is_padding,
    Optional<Moe_IdTensor>:$given_ids,
    Moe_RoutingAttr:$routing);
  let results = (outs Moe_I32Tensor:$ids, Moe_F32Tensor:$weights, Optional<Moe_IdTensor>:$recorded_ids);
  let regions = (region AnyRegion:$score, AnyRegion:$weight, AnyRegion:$key);
  let assemblyFormat = [{
    $logits `:` type($logits)
    oilist(
        `selection_bias` `(` $selection_bias `:` type($selection_bias) `)`
      | `expert_scale` `(` $expert_scale `:` type($expert_scale) `)`
      | `input_ids` `(` $input_ids `:` type($input_ids) `)`
      | `hash_table` `(` $hash_table `:` type($hash_table) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `is_padding` `(` $is_padding `:` type($is_padding) `)`
      | `given` `(` $given_ids `:` type($given_ids) `)`
    )
    $routing (`score` custom<ScalarRegion>($score)^)?
    (`key` custom<ScalarRegion>($key)^)?
    (`weight` custom<ScalarRegion>($weight)^)?
    attr-dict `->` type($ids) `,` type($weights) (`record` `(` type($recorded_ids)^ `)`)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_PermuteOp : Moe_Op<"permute", [Pure]> {
  let summary = "stable sort of slots by expert";
  let description = [{
    A slot is a pair (token t, choice j). It is valid if `t < num_valid_tokens` (any t without that operand) and its
    id is in `0 .. num_experts + num_zero_experts - 1`. Valid slots whose expert has weights on this rank get
    positions `0, 1, ...` by a stable counting sort: by local expert, then by (t, j). `local_experts` lists the global
    ids of the experts on this rank, in the order of their weights; absent: all `num_experts`. With G local experts
    and P = T * k:

    | operand, result | type | |
    |---|---|---|
    | `ids`, `weights` | `T x k x i32`, `T x k x f32` | from `moe.route` or the caller |
    | `num_valid_tokens` | `1 x i32` | optional |
    | `offsets` | `(G + 1) x i32` | expert g has positions `offsets[g] .. offsets[g + 1] - 1` |
    | `position` | `T x k x i32` | position of the slot; -1 if it contributes nothing; -2 for a zero expert |
    | `source` | `P x i32` | token of a position |
    | `row_weight` | `P x 1 x f32` | weight of a position's slot |

    Edge cases: `source` and `row_weight` are undefined from `offsets[G]` on, and no op reads them there. If an id
    appears twice in a row of `ids`, both slots count. Zero experts have the ids
    `num_experts .. num_experts + num_zero_experts - 1` and no positions.

    ```mlir
    %offsets, %position, %source, %row_weight = moe.permute %ids, %weights
        {num_experts = 128 : i64} : tensor<?x8xi32>, tensor<?x8xf32>
        -> tensor<129xi32>, tensor<?x8xi32>, tensor<?xi32>, tensor<?x1xf32>
    ```
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
    IsolatedFromAbove, Moe_NamedResult]> {
  let summary = "grouped or dense gemm with an epilogue";
  let description = [{
    For position p of group g, i.e. `offsets[g] <= p < offsets[g + 1]`, and `row = source[p]` (p without `source`):

    `acc[n] = sum_k input[row, k] * weight[g, n, k]`, accumulated in f32,
    `result[p, n] = cast(epilogue(acc[n], rows[p]..., columns[g, n]..., elementwise[p, n]...))`.

    Without `offsets` the gemm is dense: one group with all rows. With `layout`, weight rows are I pairs (gate, up):
    the epilogue gets two accumulators and two values of each column operand, and the result has I columns. With G
    groups, M positions (`?`), and C = I with a layout, else N:

    | operand, result | grouped | dense |
    |---|---|---|
    | `input` | `? x K` | `T x K` |
    | `weight`, in the element type of `input` | `G x N x K` | `N x K` |
    | `input_scale`, by `input_quant` | `? x Bi x f32`, or `1 x f32` | `T x Bi x f32`, or `1 x f32` |
    | `weight_scale`, in the scale type of `weight_quant` | `G x Bn x Bk` | `Bn x Bk` |
    | `weight_zero_point`, by `weight_quant`; minima have the scales' type | `G x Bn x Bk x i8` | `Bn x Bk x i8` |
    | `weight_global_scale`, by `weight_quant` | `G x 1 x f32`, or `G x 2` | `1 x f32`, or `2` |
    | `offsets` | `(G + 1) x i32` | absent |
    | `source` | `M x i32`, optional | absent |
    | `num_valid_tokens` | absent | `1 x i32`, optional |
    | `rows`, any number | `M x 1 x f32`, or `M x i8`: 1 if the byte is not 0 | `T x 1 x f32`, or `T x i8` |
    | `columns`, any number | `G x N` | `N` |
    | `elementwise`, any number | `M x C` | `T x C` |
    | `shrunk` and `adapters`, of a `moe.lora_shrink`; both or none | `M x (number of b * r) x f32`, `M x 1 x i32` | absent |
    | `b`, beside these: one, with a layout for gate and for up | `A x G x C x r` | absent |
    | `result` | `M x C` | `T x C` |

    `epilogue` is a scalar region. Its arguments, all f32, in this order: the accumulator (gate and up with a layout);
    each row operand; each column operand (with a layout its gate value, then its up value); each elementwise operand;
    for each `b` the second half of a LoRA update, `sum_j shrunk[p, i * r + j] * b_i[adapters[p], g, n, j]`, 0 for -1.
    An empty region yields the accumulator; a layout or operands require a region. Operands are extended to f32 before
    the epilogue, and its result is rounded to nearest even to the element type of `result`: f32, bf16 or f16,
    independent of the input's type.

    **Quantized operands**: `input_quant` and `weight_quant` (`#moe.quant`, each optional) describe the elements of
    `input` and `weight` and which of them share a value of `input_scale` (`T x Bi`) and `weight_scale` (`G x Bn x
    Bk`). An input of granularity `tensor` has one scale for all rows, `1 x f32`. An operand without a quant is not
    quantized. With `si` and `sw` the scales of the two operands (1 without), and blocks b of elements along K that
    share both scales,

    `acc[n] = sum_b (sum_{k in b} input[row, k] * weight[g, n, k]) * (si[row, b] * sw[g, blk(n), b])`,

    accumulated in f32 in an order chosen by the schedule; the product of the two scales is rounded to f32 first.

    For a weight with m x n elements per scale, `blk(n) = n / m`. Gate and up halves have separate blocks: with the
    layouts `gate_up` and `up_gate`, `blk(n) = (n / I) * ceil(I/m) + (n % I) / m` and Bn = `2 ceil(I/m)`. `channel`
    has m = 1; `tensor` has m = I (or N). `channel`, `tensor` and `token` have one block along K. The last block of
    either dimension may be smaller. K counts elements, also if several share a byte.

    A weight with zero points stands for `weight[g, n, k] - weight_zero_point[g, blk(n), b]`, with bytes read as
    unsigned. An i4 weight without zero points stands for `weight[g, n, k] - 8`. `sw` is
    `weight_scale * weight_global_scale`, rounded to f32; if gate and up rows are halves, each half has its own global
    scale (in the order of the layout). With `minimum` in `weight_quant`, values of `weight_zero_point` are subtracted
    after scaling: each block b adds
    `- (sum_{k in b} input[row, k]) * (si[row, b] * weight_zero_point[g, blk(n), b])`, and i4 has no implicit zero
    point.

    `strategy` is how the target multiplies; `moe-legalize-quant` sets it on gemms with a quant. A prepacked weight
    (`prepacked`) has scales and zero points in the bytes of `weight_scale` (`G x N x B x i8`,
    docs/design/gemm-hopper.md) and one `weight_global_scale` per row (`G x N`).

    Edge cases: an empty group costs nothing. Rows of `result` from `offsets[G]` on are undefined. In a dense gemm,
    rows from `num_valid_tokens` on are zero, independent of the epilogue.

    ```mlir
    %h = moe.grouped_matmul %x, %w13 : tensor<?x2048xbf16>, tensor<128x1536x2048xbf16>
        offsets(%offsets : tensor<129xi32>) source(%source : tensor<?xi32>)
        columns(%bias : tensor<128x1536xbf16>) epilogue {
        ^bb0(%gate: f32, %up: f32, %gate_bias: f32, %up_bias: f32):
          %g = arith.addf %gate, %gate_bias : f32
          %u = arith.addf %up, %up_bias : f32
          %y = arith.mulf %g, %u : f32
          moe.yield %y : f32
        } {layout = #moe.weight_layout<order = gate_up>} -> tensor<?x768xbf16>
    ```
  }];
  let arguments = (ins
    Moe_ProductTensor:$input,
    Moe_ProductTensor:$weight,
    Optional<Moe_F32Tensor>:$input_scale,
    Optional<Moe_AnyScaleTensor>:$weight_scale,
    Optional<Moe_ZeroTensor>:$weight_zero_point,
    Optional<Moe_F32Tensor>:$weight_global_scale,
    Optional<Moe_I32Tensor>:$offsets,
    Optional<Moe_I32Tensor>:$source,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Variadic<Moe_RowTensor>:$row_operands,
    Variadic<Moe_DataTensor>:$column_operands,
    Variadic<Moe_DataTensor>:$elementwise_operands,
    Optional<Moe_F32Tensor>:$shrunk, Optional<Moe_I32Tensor>:$adapters, Variadic<Moe_DataTensor>:$matrices,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout,
    OptionalAttr<Moe_QuantAttr>:$input_quant, OptionalAttr<Moe_QuantAttr>:$weight_quant,
    OptionalAttr<Moe_StrategyAttr>:$strategy);
  let results = (outs Moe_DataTensor:$result);
  let regions = (region AnyRegion:$epilogue);
  let assemblyFormat = [{
    $input `,` $weight `:` type($input) `,` type($weight)
    oilist(
        `input_scale` `(` $input_scale `:` type($input_scale) `)`
      | `weight_scale` `(` $weight_scale `:` type($weight_scale) `)`
      | `weight_zero_point` `(` $weight_zero_point `:` type($weight_zero_point) `)`
      | `weight_global_scale` `(` $weight_global_scale `:` type($weight_global_scale) `)`
      | `offsets` `(` $offsets `:` type($offsets) `)`
      | `source` `(` $source `:` type($source) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `rows` `(` $row_operands `:` type($row_operands) `)`
      | `columns` `(` $column_operands `:` type($column_operands) `)`
      | `elementwise` `(` $elementwise_operands `:` type($elementwise_operands) `)`
      | `shrunk` `(` $shrunk `:` type($shrunk) `)`
      | `adapters` `(` $adapters `:` type($adapters) `)`
      | `b` `(` $matrices `:` type($matrices) `)`
    )
    (`epilogue` custom<ScalarRegion>($epilogue)^)? attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_PrepackOp : Moe_Op<"prepack", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "weights prepacked in the order of tensor cores";
  let description = [{
    Prepacks weights of `quant` into `packing`, which depends on the type that they are multiplied in: `prepacked` for
    bf16, `prepacked_f16` for f16, `prepacked_e4m3` for e4m3. Quantized values keep their number of bytes, in the
    order described in docs/design/gemm-hopper.md. Scales and zero points become adjacent bytes, with at least one scale
    per 64 elements along K. A minimum becomes a zero point and a rest. Each row gets a `row_scale`: 2^r times the
    factor that the whole row shares, which is its scale of `channel` or its `global_scale`. Weights are constant, so
    a plan does this once, before all runs, into prepared tensors.

    | `packing`, `quant` | scales | e: a stored value is 2^-e times the quantized value | r = 0 up to a scale of |
    |---|---|---|---|
    | `prepacked`, f4E2M1FN | f8E8M0FNU, groups of 32; f8E4M3FN, groups of 16, with `global_scale` | 126 | 2^2, exclusive |
    | `prepacked`, i4, perhaps with zero points | f32, bf16 or f16, groups of 32 or multiples of 64, and `channel`, whose groups have the scale 1 | 133, and 129 in every second 8 rows | 2^-5, exclusive |
    | `prepacked`, i4 or i8 with minima | f32, bf16 or f16, groups of 32 or multiples of 64, for i8 also of 16 | as without minima | 2^-5, exclusive |
    | `prepacked`, code books | as for i4 without zero points | 0 | 2^127 for entries below 2, exclusive; less for larger ones |
    | `prepacked_f16`, i4, perhaps with zero points or minima | as for `prepacked` | 24, and 20 in every second 8 rows | 2^-8, exclusive |
    | `prepacked_f16`, f4E2M1FN | as for `prepacked` | 14 | 2^2, exclusive |
    | `prepacked`, i8, perhaps with zero points | as for i4, and groups of 16, `tensor` and `block` | 133 | 2^-5, exclusive |
    | `prepacked`, f8E4M3FN | as for i8; f8E8M0FNU, groups of 32 | 120 | 2^8, exclusive |
    | `prepacked_f16`, i8, f8E4M3FN | as for `prepacked` | 24; 8 | 2^-8; 2^6, exclusive |
    | `prepacked_e4m3`, f4E2M1FN | f8E8M0FNU, groups of 32 | 0 | 2^6, to which the largest of a row is mapped |
    | `prepacked_e4m3`, i4 | f32, bf16 or f16, groups of 32 or multiples of 64, and `channel`, whose groups have the scale 1 | 9 | 2^119, exclusive |
    | `prepacked_e4m3`, f8E4M3FN | f32, bf16 or f16, groups of 32 or multiples of 64, and `block` | 0 | 2^128, exclusive |
    | `prepacked_e4m3`, f8E4M3FN | f8E8M0FNU, groups of 32 | 0 | 2^73, to which the largest of a row is mapped |

    A group's scale s is stored as s * 2^(e - r), with r as small as the row's largest scale allows, not counting
    groups of zeros. r is at least 0, or also negative if scales are stored as f16, which has few exponents
    (`prepacked_f16`, and integers with f16 scales). A row with scales 2^127 and 2^-127 loses the latter; with scales
    stored as f16, a row loses scales 2^30 times smaller than its largest. f32 scales are rounded to f16 then. A scale
    that is NaN or infinite makes its row's factor NaN; a bf16 scale below 2^-126 counts as 0. For f8E4M3FN, the
    values of a group with scale 0 become 0, and the values of a group with a negative scale change their signs.

    A NaN of f8E4M3FN makes its row's factor NaN.

    With a minimum m, the zero point is the quantized value z that minimizes |z s - m| in f32, and the rest, (z s - m)
    * 2^-r, is rounded to bf16, or to f16 in `prepacked_f16`. There r leaves headroom for the rest: none exceeds 2^15.
    If all values of a group are 0, z is 0 and the rest -m. The gemm rounds entries of a code book to bf16 or f16.

    In `prepacked_e4m3`, a scale of f4E2M1FN is one of 12 powers of two: the largest of its row and the 11 below.
    Values of a group with a smaller scale are rounded to f4E2M1FN values times the least of the 12, ties to even: an
    error of at most 2^-13 of the row's largest scale.

    With E matrices of N rows and K columns (without E for a single one), N and K multiples of 64, G elements per
    scale, and B bytes per row (docs/design/gemm-hopper.md):

    | operand, result | type |
    |---|---|
    | `weight`, `packed` | `E x N x K/2 x i8` for 4 bits, `E x N x K` for 8 |
    | `scale` | `E x N x K/G`, or `E x N x 1` for `channel` |
    | `zero_point` | the shape of `scale`; i8 zero points, or minima of the scales' type, by `quant` |
    | `global_scale` | with a second scale in `quant`: `E x 2 x f32` if gate and up rows are halves, else `E x 1 x f32` |
    | `packed_scale` | `E x N x B x i8` |
    | `row_scale` | `E x N x f32` |

    ```mlir
    %p, %ps, %r = moe.prepack <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32],
                              packing = pairs> %w, %s {layout = #moe.weight_layout<order = gate_up>}
        : tensor<32x5760x1440xi8>, tensor<32x5760x90xf8E8M0FNU>
        -> tensor<32x5760x1440xi8>, tensor<32x5760x90xi8>, tensor<32x5760xf32>
    ```
  }];
  let arguments = (ins
    RankedTensorOf<[I8, F8E4M3FN]>:$weight, Moe_ScaleTensor:$scale,
    Optional<Moe_ZeroTensor>:$zero_point, Optional<Moe_F32Tensor>:$global_scale,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout, Moe_QuantAttr:$quant,
    DefaultValuedAttr<Moe_PackingAttr, "::moec::moe::Packing::Prepacked">:$packing);
  let results = (outs Moe_ByteTensor:$packed, Moe_ByteTensor:$packed_scale, Moe_F32Tensor:$row_scale);
  let assemblyFormat = [{
    $quant $weight `,` $scale (`zero_point` `(` $zero_point^ `:` type($zero_point) `)`)?
    (`global_scale` `(` $global_scale^ `:` type($global_scale) `)`)?
    attr-dict `:` type($weight) `,` type($scale) `->` type(results)
  }];
  let hasVerifier = 1;
}

def Moe_DispatchOp : Moe_Op<"dispatch", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "all-gather of rows over an axis, or dispatch to destination ranks";
  let description = [{
    Each of `inputs` has `T x ...` elements on every rank of `axis`. Its result concatenates the inputs of all ranks
    in rank order: row `i * T + t` is row t of rank i. Inputs without T rows (`num_valid_tokens`, `1 x i32`) are
    concatenated in the same way. T is equal on all ranks (docs/use/parallel.md). Over `tp`, ranks each have a part of
    their group's tokens.

    With `destinations` (`E x i32`: the index on the axis of the rank that holds each expert, -1 for none), the inputs
    numbered by `routed` go only to a row's destination ranks, i.e. those that hold an expert of its `ids`. On other
    ranks that row of the result is undefined and is not read. With `experts_per_rank`, the table is that of
    `moe.place_ids` with replicas (`E x M x i32`), of physical experts. Each rank of the axis holds
    `experts_per_rank` consecutive physical experts, and destination ranks hold any replica of the ids.

    ```mlir
    %rows, %all_ids = moe.dispatch <dp> %x, %ids destinations(%o : tensor<64xi32>) ids(%ids : tensor<?x8xi32>)
        routed [0]
        : tensor<?x2048xbf16>, tensor<?x8xi32> -> tensor<?x2048xbf16>, tensor<?x8xi32>
    ```
  }];
  let arguments = (ins Moe_AxisAttr:$axis, Variadic<AnyRankedTensor>:$inputs, Optional<Moe_I32Tensor>:$destinations,
                       Variadic<Moe_I32Tensor>:$ids, OptionalAttr<DenseI64ArrayAttr>:$routed,
                       OptionalAttr<I64Attr>:$experts_per_rank);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $axis $inputs (`destinations` `(` $destinations^ `:` type($destinations) `)`)? (`ids` `(` $ids^ `:` type($ids) `)`)?
    (`routed` $routed^)? attr-dict `:` type($inputs) `->` type($results)
  }];
  let hasVerifier = 1;
}

def Moe_CombineOp : Moe_Op<"combine", [Pure, AttrSizedOperandSegments, AllTypesMatch<["input", "result"]>,
                                       Moe_NamedResult]> {
  let summary = "reduction of partial rows over an axis";
  let description = [{
    `input` is a partial on each rank of `axis`. Over `tp`, every rank gets the sum. Over `dp`, and over `tp` with
    `own_rows`, rows are those of all ranks in the order of `moe.dispatch`, and each rank gets the sums of its own
    rows. Sums are rounded to the element type, in an order of ranks that does not change from run to run.

    With `destinations`, over `dp`, the partial of a rank that is no destination of a row (see `moe.dispatch`) is +0.0,
    whatever `input` holds. `ids` are those of the rank's own rows and those of all rows.

    ```mlir
    %y = moe.combine <dp> %partial destinations(%o : tensor<64xi32>) ids(%ids, %all : tensor<?x8xi32>, tensor<?x8xi32>)
        : tensor<?x2048xbf16>
    %z = moe.combine <tp> own_rows %partial : tensor<?x2048xbf16>
    ```
  }];
  let arguments = (ins Moe_AxisAttr:$axis, Moe_DataTensor:$input, Optional<Moe_I32Tensor>:$destinations,
                       Variadic<Moe_I32Tensor>:$ids, UnitAttr:$own_rows, OptionalAttr<I64Attr>:$experts_per_rank);
  let results = (outs Moe_DataTensor:$result);
  let assemblyFormat = [{
    $axis (`own_rows` $own_rows^)? $input (`destinations` `(` $destinations^ `:` type($destinations) `)`)?
    (`ids` `(` $ids^ `:` type($ids) `)`)? attr-dict `:` type($input)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::moec::moe::Axis":$axis, CArg<"bool", "false">:$own_rows), [{
    build($_builder, $_state, input.getType(), axis, input, /*destinations=*/::mlir::Value(),
          /*ids=*/::mlir::ValueRange(), own_rows, /*experts_per_rank=*/::mlir::IntegerAttr());
  }]>];
  let extraClassDeclaration = [{
    /// Whether each rank gets only the sums of its own rows.
    bool scatters() { return getAxis() == Axis::Dp || getOwnRows(); }
  }];
  let hasVerifier = 1;
}

def Moe_PlaceIdsOp : Moe_Op<"place_ids", [Pure, AttrSizedOperandSegments, Moe_NamedResult]> {
  let summary = "global to local expert ids";
  let description = [{
    `result[t, j] = table[ids[t, j]]`; -1 if the id is outside the table or row t is padding. Without `table`, ids of
    other rows are kept. If `num_valid_tokens` has D elements, rows form D runs of `T / D`, and in run d rows from
    `num_valid_tokens[d]` on are padding. Rows with `is_padding` not 0 are padding too.

    With `replica_counts`, expert e has `n = replica_counts[e]` replicas and token t takes one of them:
    `result[t, j] = table[e, h mod n]` with `h = t * 2654435769 mod 2^32`, t counted from the first row. If n is not
    in 1 to M, the result is -1.

    With `zero_experts = [E, Z]`, without a table, the result holds positions in the sense of `moe.permute`, of slots
    whose experts are on other ranks: -2 for the ids `E .. E + Z - 1` of zero experts, -1 for all others. With
    `replica_counts` and `zero_experts = [E, Z, P]`, ids of zero experts, which the table does not have, become
    `P .. P + Z - 1`, behind those of P physical experts.

    | operand, result | type | |
    |---|---|---|
    | `ids`, `result` | `T x k x i32` | |
    | `table` | `E x i32`, with counts `E x M x i32` | index of each expert's weights on this rank, or of its replicas; -1 if another rank has them; optional |
    | `replica_counts` | `E x i32` | number of replicas of each expert; optional, with a `table` |
    | `is_padding` | `T x i8` | optional |
    | `num_valid_tokens` | `D x i32` | optional; D divides T |

    ```mlir
    %local = moe.place_ids %ids : tensor<?x8xi32> table(%t : tensor<64xi32>)
    ```
  }];
  let arguments = (ins Moe_I32Tensor:$ids, Optional<Moe_I32Tensor>:$table,
                       Optional<Moe_I32Tensor>:$replica_counts,
                       Optional<Moe_I32Tensor>:$num_valid_tokens, Optional<Moe_ByteTensor>:$is_padding,
                       OptionalAttr<DenseI64ArrayAttr>:$zero_experts);
  let results = (outs Moe_I32Tensor:$result);
  let assemblyFormat = [{
    $ids `:` type($ids) (`table` `(` $table^ `:` type($table) `)`)?
    (`replica_counts` `(` $replica_counts^ `:` type($replica_counts) `)`)?
    (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`is_padding` `(` $is_padding^ `:` type($is_padding) `)`)? attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

def Moe_GatherRowsOp : Moe_Op<"gather_rows", [Pure, AttrSizedOperandSegments, Moe_NamedResult]> {
  let summary = "gather of rows by expert and columns by the expert's column order";
  let description = [{
    `result[p, c] = input[source[p], columns[e, c]]`, with e the expert of position p by `offsets`; rows from the last
    of `offsets` on are undefined. Without `offsets` and `source`, `result[t, c] = input[t, columns[0, c]]`. An index
    in `columns` that is out of range counts as the last column. Gemms of experts whose weights were quantized in
    their own column order (GPTQ's act-order) read the result.

    | operand, result | type | |
    |---|---|---|
    | `input` | `T x W` | |
    | `offsets` | `(E + 1) x i32` | first position of each expert; together with `source` and `top_k` |
    | `source` | `T * k x i32` | the row of each position |
    | `columns` | `E x W x i32`, without `offsets` `1 x W x i32` | input column of each weight column, per expert |
    | `result` | `T * k x W`, without `offsets` `T x W` | the type of `input` |

    ```mlir
    %y = moe.gather_rows %x : tensor<?x64xbf16> offsets(%o : tensor<9xi32>) source(%s : tensor<?xi32>)
        columns(%c : tensor<8x64xi32>) {top_k = 2 : i64} -> tensor<?x64xbf16>
    %z = moe.gather_rows %x : tensor<?x64xbf16> columns(%d : tensor<1x64xi32>) -> tensor<?x64xbf16>
    ```
  }];
  let arguments = (ins Moe_DataTensor:$input, Optional<Moe_I32Tensor>:$offsets, Optional<Moe_I32Tensor>:$source,
                       Moe_I32Tensor:$columns, OptionalAttr<I64Attr>:$top_k);
  let results = (outs Moe_DataTensor:$result);
  let assemblyFormat = [{
    $input `:` type($input)
    (`offsets` `(` $offsets^ `:` type($offsets) `)` `source` `(` $source `:` type($source) `)`)?
    `columns` `(` $columns `:` type($columns) `)` attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

def Moe_RowMapOp : Moe_Op<"row_map", [Pure, AttrSizedOperandSegments, IsolatedFromAbove, Moe_NamedResult]> {
  let summary = "an elementwise map of rows";
  let description = [{
    `result[t, c] = cast(body(input[t, c], rows[t]..., elementwise[t, c]...))`, in f32 and rounded once.

    `input` and `result` are `T x W` of one type, `rows` any number of `T x 1 x f32`, `elementwise` any number of
    `T x W`. The region takes the element, one value per row operand and one per elementwise operand. Example: Llama
    4's weight on the input, `body(x, w) = x * w`. With `num_valid_tokens` (`1 x i32`), rows from there on are zero,
    independent of the body.

    ```mlir
    %y = moe.row_map %x : tensor<?x2048xbf16> rows(%w : tensor<?x1xf32>) {
    ^bb0(%v: f32, %r: f32):
      %m = arith.mulf %v, %r : f32
      moe.yield %m : f32
    } -> tensor<?x2048xbf16>
    ```
  }];
  let arguments = (ins Moe_DataTensor:$input, Optional<Moe_I32Tensor>:$num_valid_tokens,
                       Variadic<Moe_F32Tensor>:$row_operands, Variadic<Moe_DataTensor>:$elementwise_operands);
  let results = (outs Moe_DataTensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $input `:` type($input) (`num_valid_tokens` `(` $num_valid_tokens^ `:` type($num_valid_tokens) `)`)?
    (`rows` `(` $row_operands^ `:` type($row_operands) `)`)?
    (`elementwise` `(` $elementwise_operands^ `:` type($elementwise_operands) `)`)?
    custom<ScalarRegion>($body) attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Moe_RmsNormOp : Moe_Op<"rms_norm", [Pure, AttrSizedOperandSegments, Moe_NamedResult]> {
  let summary = "an RMS norm of rows";
  let description = [{
    `result[t] = cast(norm(input[t]) * rows[t])`, by the formula of `#moe.norm`, without the factor if there are no
    `rows`. A row depends on no other.

    Without `offsets`, rows are tokens. With `offsets`, rows are positions, at most `tokens * top_k`; the result is
    undefined from the last offset on. With G groups of rows and W columns:

    | operand, result | type |
    |---|---|
    | `input`, `result` | `? x W`, of one type |
    | `weight` | `W`, of the same type |
    | `rows` | `? x 1 x f32` |
    | `offsets` | `(G + 1) x i32`, together with the attribute `top_k` |

    ```mlir
    %y = moe.rms_norm <epsilon = 1.0e-5 : f32> %x weight(%w : tensor<3584xbf16>)
        : tensor<?x3584xbf16> -> tensor<?x3584xbf16>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$input, Moe_DataTensor:$weight,
    Optional<Moe_F32Tensor>:$row_weight,
    Optional<Moe_I32Tensor>:$offsets,
    OptionalAttr<I64Attr>:$top_k,
    Moe_NormAttr:$norm);
  let results = (outs Moe_DataTensor:$result);
  let assemblyFormat = [{
    $norm $input `weight` `(` $weight `:` type($weight) `)`
    (`rows` `(` $row_weight^ `:` type($row_weight) `)`)?
    (`offsets` `(` $offsets^ `:` type($offsets) `)`)?
    attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Moe_LoraShrinkOp : Moe_Op<"lora_shrink", [Pure, Moe_NamedResult]> {
  let summary = "rows times the first matrices of their adapters";
  let description = [{
    The first half of a LoRA update. Position p is a slot of token `t = source[p]` with the expert of its group e and
    the adapter `a = adapter_ids[t]`. With x row t of `input` (`gather`) or row p (without), matrix i of `a`,
    rank r and K columns:

    `result[p, i * r + j] = sum_k x[k] * a_i[a, e, j, k]`, in f32.

    The sum's order depends on K alone. `adapter[p]` is a, or -1 if a is not one of `0 .. A - 1`; the row of `result` is
    0 then. Both are undefined from the last offset on. A gemm multiplies the result by the second matrices (`shrunk` of
    `moe.grouped_matmul`).

    | operand, result | type |
    |---|---|
    | `input` | `T x K` with `gather`, else `M x K` |
    | `a`, one or more | `A x G x r x K`, in the element type of `input` |
    | `offsets`, `source` | `(G + 1) x i32`, `M x i32`; `M` is at most `tokens * top_k` |
    | `adapter_ids` | `T x i32` |
    | `result`, `adapter` | `M x (number of a * r) x f32`, `M x 1 x i32` |

    ```mlir
    %s, %adapter = moe.lora_shrink gather %x a(%ga, %ua : tensor<4x128x16x2048xbf16>, tensor<4x128x16x2048xbf16>)
        offsets(%offsets : tensor<129xi32>) source(%source : tensor<?xi32>) adapter_ids(%ids : tensor<?xi32>)
        {top_k = 8 : i64} : tensor<?x2048xbf16> -> tensor<?x32xf32>, tensor<?x1xi32>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$input, Variadic<Moe_DataTensor>:$matrices, Moe_I32Tensor:$offsets, Moe_I32Tensor:$source,
    Moe_I32Tensor:$adapter_ids, UnitAttr:$gather, I64Attr:$top_k);
  let results = (outs Moe_F32Tensor:$result, Moe_I32Tensor:$adapter);
  let assemblyFormat = [{
    (`gather` $gather^)? $input `a` `(` $matrices `:` type($matrices) `)` `offsets` `(` $offsets `:` type($offsets) `)`
    `source` `(` $source `:` type($source) `)` `adapter_ids` `(` $adapter_ids `:` type($adapter_ids) `)`
    attr-dict `:` type($input) `->` type($result) `,` type($adapter)
  }];
  let hasVerifier = 1;
}

def Moe_TensorScaleOp : Moe_Op<"tensor_scale", [Pure, AttrSizedOperandSegments, Moe_NamedResult]> {
  let summary = "dynamic scale shared by all rows of a call";
  let description = [{
    `quant` is dynamic and of granularity `tensor`. In f32, each operation rounded to nearest even,
    `scale[0] = max(absmax, 1e-10) / 448` with `absmax = max |input[t, c]|` over the finite elements of all valid
    rows: NaN and infinities do not affect other rows. A `moe.quantize` takes the scale as `tensor_scale`.

    With `offsets`, rows are positions, at most `tokens * top_k`, and those below the last offset are valid. With
    `num_valid_tokens`, rows are tokens, and the first `num_valid_tokens` are valid. Without both, all rows are valid
    tokens. A token with `is_padding` not 0 is not valid. Without any valid row, the scale is 1e-10 / 448.

    | operand, result | type |
    |---|---|
    | `input` | `? x W` |
    | `offsets` | `(G + 1) x i32`, together with the attribute `top_k` |
    | `num_valid_tokens` | `1 x i32`, without `offsets` |
    | `is_padding` | `T x i8`, without `offsets` |
    | `scale` | `1 x f32` |

    ```mlir
    %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %h
        offsets(%offsets : tensor<129xi32>) {top_k = 8 : i64} : tensor<?x768xbf16> -> tensor<1xf32>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$input,
    Optional<Moe_I32Tensor>:$offsets,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Optional<Moe_ByteTensor>:$is_padding,
    OptionalAttr<I64Attr>:$top_k,
    Moe_QuantAttr:$quant);
  let results = (outs Moe_F32Tensor:$scale);
  let assemblyFormat = [{
    $quant $input
    oilist(
        `offsets` `(` $offsets `:` type($offsets) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `is_padding` `(` $is_padding `:` type($is_padding) `)`
    )
    attr-dict `:` type($input) `->` type($scale)
  }];
  let hasVerifier = 1;
}

def Moe_QuantizeOp : Moe_Op<"quantize", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "quantization of rows to e4m3 with dynamic scales or a given one";
  let description = [{
    A dynamic `quant` says which elements share a scale: n neighbours with `group`, a whole row with `token`. For each
    row t and each group b (the last one may be smaller), in f32, each operation rounded to nearest even:

    1. `absmax = max |input[t, c]|` over the group; NaN if any element is NaN.
    2. `scale[t, b] = max(absmax, least) / 448`, with `least` 1e-10 for a `group` and 1/512 for a `token`; NaN stays
       NaN.
    3. `quantized[t, c] = e4m3(input[t, c] / scale[t, b])`: a division, not a product with a reciprocal, then rounded
       to nearest even.

    All targets produce equal bits, except for sign and payload of NaNs. No finite value exceeds the largest e4m3,
    448. Edge cases: a group of zeros has the scale least/448. NaN in a group makes the whole group and its scale NaN.
    An infinite absmax becomes the scale: infinite elements become NaN, finite ones 0. Neither affects other rows.

    A static `quant` of granularity `tensor` takes the scale of all rows as `tensor_scale`, finite and above 0, and
    yields no scales: `quantized[t, c] = e4m3(input[t, c] / tensor_scale[0])`. Values beyond 448, including
    infinities, saturate to 448 with their sign; NaN stays NaN.

    With `packing = bf16`, `quantized` holds the quantized values as bf16, which is exact. With `power_of_two` they
    are multiplied by their scales, which is exact too, and there is no `scale` result.

    Without `offsets`, rows are tokens and all are quantized. With `offsets`, rows are positions, at most
    `tokens * top_k`; both results are undefined from the last offset on. With G groups of rows and W columns:

    | operand, result | type |
    |---|---|
    | `input` | `? x W` |
    | `offsets` | `(G + 1) x i32`, together with the attribute `top_k` |
    | `tensor_scale` | `1 x f32`, with granularity `tensor` |
    | `quantized` | `? x W x f8E4M3FN`, or `bf16` by `packing` |
    | `scale` | `? x ceil(W/n) x f32`, `? x 1 x f32` with `token`, absent with `tensor`, and if `quantized` is multiplied by it |

    ```mlir
    %q, %s = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128],
                           dynamic = true> %h offsets(%offsets : tensor<129xi32>) {top_k = 8 : i64}
        : tensor<?x768xbf16> -> tensor<?x768xf8E4M3FN>, tensor<?x6xf32>
    %q = moe.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> %x tensor_scale(%s : tensor<1xf32>)
        : tensor<?x2048xbf16> -> tensor<?x2048xf8E4M3FN>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$input,
    Optional<Moe_I32Tensor>:$offsets,
    Optional<Moe_F32Tensor>:$tensor_scale,
    OptionalAttr<I64Attr>:$top_k,
    Moe_QuantAttr:$quant);
  let results = (outs Moe_QuantizedTensor:$quantized, Optional<Moe_F32Tensor>:$scale);
  let assemblyFormat = [{
    $quant $input
    oilist(
        `offsets` `(` $offsets `:` type($offsets) `)`
      | `tensor_scale` `(` $tensor_scale `:` type($tensor_scale) `)`
    )
    attr-dict `:` type($input) `->` type($quantized) (`,` type($scale)^)?
  }];
  let hasVerifier = 1;
}

def Moe_UnpermuteOp : Moe_Op<"unpermute", [Pure, AttrSizedOperandSegments, Moe_NamedResult]> {
  let summary = "combine: the sum of each token's expert rows";
  let description = [{
    In f32, in order of j, `r[t] = sum_j` of

    - `rows[position[t, j]]` if `position[t, j] >= 0`,
    - `identity_weights[t, j] * identity[t]` if it is -2 and `identity` is present (a zero expert),
    - nothing otherwise: such a slot is left out, never multiplied by 0.

    `result[t] = cast(r[t] + addend[t])`, rounded once. With width W:

    | operand, result | type |
    |---|---|
    | `rows` | `P x W` |
    | `position` | `T x k x i32`, from `moe.permute` |
    | `identity`, `identity_weights` | `T x W`, `T x k x f32`; both or none, with zero experts |
    | `addend` | `T x W`, the shared expert's output; or `W`, a bias, the same row for each token |
    | `num_valid_tokens` | `1 x i32` |
    | `result` | `T x W` |

    `rows`, `identity`, `addend` and `result` have one element type. If no position is 0 or more, as on ranks that add
    zero experts after a reduction (docs/use/parallel.md), `rows` are not read. Edge cases: rows from `num_valid_tokens`
    on are zero, without the addend. A token without valid slots gets its addend alone.

    With `unreduced` nothing is added: `result` is `T x (k * W)`, row t holds the rows of the slots j = 0, 1, ... one
    after another, and +0.0 where `position[t, j]` is negative. With `from_unreduced`, `rows` is such a result of any
    number of ranks, and the row of slot j counts if `position[t, j] >= 0`, whatever its value. Together, around a
    `moe.combine` of +0.0 from all ranks but one, they add in the order of one rank.

    ```mlir
    %y = moe.unpermute %rows, %position : tensor<?x2048xbf16>, tensor<?x8xi32>
        addend(%shared : tensor<?x2048xbf16>) -> tensor<?x2048xbf16>
    ```
  }];
  let arguments = (ins
    Moe_DataTensor:$rows,
    Moe_I32Tensor:$position,
    Optional<Moe_DataTensor>:$identity,
    Optional<Moe_F32Tensor>:$identity_weights,
    Optional<Moe_DataTensor>:$addend,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    UnitAttr:$unreduced, UnitAttr:$from_unreduced);
  let results = (outs Moe_DataTensor:$result);
  let assemblyFormat = [{
    (`unreduced` $unreduced^)? (`from_unreduced` $from_unreduced^)? $rows `,` $position `:` type($rows) `,` type($position)
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
