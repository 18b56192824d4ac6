//===- MoeLayerOp.td - the layer op and its regions ------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOELAYEROP_TD
#define MOEC_DIALECTS_MOE_MOELAYEROP_TD

include "MoeAttrs.td"
include "MoeTypes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

class Moe_Op<string mnemonic, list<Trait> traits = []> : Op<Moe_Dialect, mnemonic, traits>;

def Moe_DataTensor : RankedTensorOf<[F32, BF16, F16]>;
def Moe_QuantizedTensor : RankedTensorOf<[F8E4M3FN, I8, BF16]>;
/// Operands of a gemm; quantized ones come with scales.
def Moe_ProductTensor : RankedTensorOf<[F32, BF16, F16, F8E4M3FN, F8E5M2, I8]>;
def Moe_F32Tensor : RankedTensorOf<[F32]>;
def Moe_I32Tensor : RankedTensorOf<[I32]>;
/// Ids of experts that a caller holds: i32, i16, or bytes without a sign.
def Moe_IdTensor : RankedTensorOf<[I32, I16, I8]>;
/// One value per row: f32, or a byte as a boolean.
def Moe_RowTensor : RankedTensorOf<[F32, I8]>;
def Moe_ScaleTensor : RankedTensorOf<[F32, BF16, F16, F8E8M0FNU, F8E4M3FN]>;
// Prepacked weights have bytes as scales.
def Moe_AnyScaleTensor : RankedTensorOf<[F32, BF16, F16, F8E8M0FNU, F8E4M3FN, I8]>;
def Moe_ByteTensor : RankedTensorOf<[I8]>;
/// Zero points, or minima.
def Moe_ZeroTensor : RankedTensorOf<[I8, F32, BF16, F16]>;

def Moe_LayerOp : Moe_Op<"layer", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments, IsolatedFromAbove]> {
  let summary = "a whole Mixture-of-Experts layer";
  let description = [{
    All formulas of docs/use/layers.md in one op; formula numbers below are those of that page. Symbols: T tokens (always
    `?`), H hidden size, L latent size (H without a latent path), E experts with weights on this rank, Z zero experts,
    R rows of the router (all experts of the layer, then the zero experts), k = top_k, I intermediate size, N rows of
    `w13` (2 I if the activation takes gate and up, else I), S and N_s: I and N of the shared expert, V the vocabulary
    size, A the number of adapters and r their rank, D the layer dtype (the element type of `hidden`):

    | operand, as written | type | formula |
    |---|---|---|
    | `hidden` (first) | `T x H x D` | |
    | exactly one entry: `gate` | `R x H x D`; optionally with `gate_bias`, `R x f32`; or `2 R x H x D`, the sum of two weights | 1 |
    | `gate_hidden`, beside `gate` | `M x H x D`; `gate` is `R x M x D` then | 1 |
    | ... or `logits` | `T x R`, of `f32`, `bf16` or `f16` | |
    | ... or `ids` and `weights` | `T x k x i32`, `T x k x f32` | |
    | `ids` without `weights`, beside `gate` or `logits`: replayed ids | `T x k`, of `i32`, `i16` or `i8` | 4 |
    | `selection_bias` | `R x f32` | 3 |
    | `expert_scale` | `R x f32` | 5 |
    | `input_ids`, `hash_table` | `T x i32`, `V x k x i32`; both or none, with `select = hash` | 4 |
    | `num_valid_tokens` | `1 x i32` | 6 |
    | `is_padding` | `T x i8` | 6 |
    | `physical_ids`, `replica_counts` | `E x M x i32`, `E x i32`; both or none | 6 |
    | `latent_down`, `latent_up` | `L x H x D`, `H x L x D`; both or none | 7, 9 |
    | `latent_in_norm`, `experts_norm`, `latent_out_norm` | `L x D` each, with an entry of `norms`; the first and the last beside the projections only | 7, 8, 9 |
    | `adapter_ids` | `T x i32`: the adapter of each token; others than `0 .. A - 1` mean none | 8 |
    | `lora_up_a`, `lora_up_b`, `lora_down_a`, `lora_down_b`; all with `adapter_ids`, or none | `A x E x r x L`, `A x E x I x r`, `A x E x r x I`, `A x E x L x r`, each of type D | 8 |
    | `lora_gate_a`, `lora_gate_b` | as for up, if the activation takes a gate | 8 |
    | `experts`: `w13` and `w2` | `E x N x L`, `E x L x I`; of type D or quantized | 8 |
    | `w13_columns` | `E x L x i32`; column order of `w13`, one per expert | 8 |
    | `w13_bias`, `w2_bias` | `E x N x D`, `E x L x D` | 8 |
    | `shared_w13`, `shared_w2` | `N_s x H`, `H x S`; both or none; of type D or quantized | 10 |
    | `shared_w13_bias`, `shared_w2_bias` | `N_s x D`, `H x D` | 10 |
    | `shared_w13_columns` | `1 x H x i32`; column order of `shared_w13` | 10 |
    | `shared_gate`, `shared_gate_bias` | `1 x H x D`, `1 x f32`; or `2 x H x D`, `2 x f32`, for a softmax | 5, 10 |
    | `output_bias` | `H x D` | 11 |
    | `w13_scale`, `w2_scale`, `shared_w13_scale`, `shared_w2_scale` | see below | |
    | `w13_zero_point`, ... for each of the four weights | shape of the scale, i8; minima have the scale's type | |
    | `w13_global_scale`, ... for each of the four weights | `E x 1 x f32`, without E for the shared expert; `E x 2` if gate and up rows are halves | |
    | `w13_input_scale`, `w2_input_scale`, `shared_w13_input_scale`, `shared_w2_input_scale` | `1 x f32`, if the activation's quantization is static | |

    Regions, each of one block that takes f32 values and ends in `moe.yield` of one f32:

    - `score(logit)`: the elementwise part of the score (formula 2); empty: identity.
    - `key(score, bias)`, or `key(score)` without `selection_bias`: the key that experts are selected by (formula 3);
      empty: `score + bias`.
    - `weight(score)`: the elementwise weight of a selected score (formula 5); empty: identity.
    - `activation(gate, up)` or `activation(x)`: formula 8. One argument means a layer without a gate.
    - `shared_activation`: the activation of the shared expert, with as many arguments as `activation`; empty:
      `activation`.

    Regions hold ops of `arith` and `math` on scalars and use no values from outside. In `activation` and
    `shared_activation`, `moe.param` reads the entries of `activation_params`, each an f32; every entry must be read.

    Attributes:

    - `routing`: the other parameters of routing. With the entry `ids`, it is absent, and so are the operands and
      regions of routing.
    - `layout`: the order of gate and up rows in `w13` and `shared_w13`; present if the activation takes two
      arguments.
    - `num_zero_experts` (default 0): Z. Ids of zero experts follow those of other experts. A zero expert has no
      weights and returns its input times the weight of the slot.
    - `weight_on_input`: the weight of a slot multiplies the input of the expert, rounded to D, and nothing later
      (formula 7). Needs k = 1.
    - `placement`: the experts with weights on this rank, in the order of `w13` and `w2`; slots with other experts
      contribute nothing. Absent: all experts.
    - `weight_quant`: all four weights are stored quantized, each with a `_scale` operand of its scale type. The shape
      of the scale for a weight of `E x rows x columns` (without E for the shared expert): granularity `tensor`
      `E x 1 x 1`, `channel` `E x rows x 1`, `group` `E x rows x columns / block[1]`, `block`
      `E x ceil(rows / block[0]) x ceil(columns / block[1])`. Gate and up halves of a first weight have separate
      scales unless rows are interleaved: `E x 2 x 1` with `tensor`, `2 ceil(I / block[0])` rows of scales with
      `block`. With `zero_point` each weight has a `_zero_point` too, of bytes read as unsigned, or of minima with
      `minimum`; with `second_scale` it has a `_global_scale`. Columns of a weight in `pairs` are half as many as
      stated above.
    - `activation_quant`, with `weight_quant`: quantization of the inputs of the experts' gemms: `dynamic`, of
      granularity `tensor`, `token` or `group`, or static, of granularity `tensor` with scales as operands. Absent:
      inputs stay of type D.
    - `quants`, instead of these two, if gemms are quantized in different ways: a `#moe.product_quant` under the name
      of each quantized weight (`w13`, `w2`, `shared_w13`, `shared_w2`). Other weights and their inputs are of type D.
    - `shared_scale`: a factor of the shared expert's output, applied after its gate and before the rounding to D
      (formula 10).
    - `format`: only `standard` so far, the default.
    - `mesh`: the ranks that run the layer (docs/use/parallel.md); absent: one. Weights and tokens are those of one rank.
      If the mesh has `num_experts`, `local_ids` (`num_experts x i32`) maps each expert to its index among the rank's
      weights, -1 if another rank has it.
    - `physical_ids` and `replica_counts`: the weights are those of physical experts. The router and all ids refer to
      E logical experts, each with up to M replicas among the physical ones (formula 6).
    - `record` and `load`: additional results. `record` returns the ids and weights that the router chose, `T x k`
      each. Ids may be `i32`, `i16`, or `i8` without a sign: at most 256 routed experts. `load` returns `expert_offsets`, one element more than `w13` has experts:
      `expert_offsets[e + 1] - expert_offsets[e]` slots chose expert e.
    - `hidden` of the storage type of the activations of `w13` is rows that the caller has quantized by them, with
      `hidden_scale`: of the activations' scale type, `T x` the scales of a row, or `1` with granularity `tensor`; none
      with a static scale. The output's element type is D then. Needs `ids`; not with a shared expert, `latent_down`,
      zero experts, `w13_columns` or `weight_on_input`.
    - `unreduced`: instead of their weighted sum the output has the rows of a token's slots without their weights, one
      after another (`T x (k * H)`), and zeros for invalid slots. Not with a shared expert, `latent_down`, zero experts
      or `weight_on_input`.
    - `batch_invariant`: the bits of a row depend on this row and the weights alone.
    - `max_tokens` (default 16384): upper bound of T in a run; `max_tokens * k` fits 31 bits.

    Edge cases: T = 0 gives an empty result. An expert without tokens costs nothing. Ids of -1 or out of range
    (possible only from `ids` and `hash_table`) contribute nothing, whatever their weight. Rows from
    `num_valid_tokens` on are zero. `nonfinite` handles scores that are not finite. Ties go to the lowest expert.

    ```mlir
    %y = moe.layer %x : tensor<?x2048xbf16> gate(%gate : tensor<128x2048xbf16>)
        experts(%w13, %w2 : tensor<128x1536x2048xbf16>, tensor<128x2048x768xbf16>)
        activation {
        ^bb0(%g: f32, %u: f32):
          %one = arith.constant 1.0 : f32
          %n = arith.negf %g : f32
          %e = math.exp %n : f32
          %d = arith.addf %one, %e : f32
          %s = arith.divf %g, %d : f32
          %a = arith.mulf %s, %u : f32
          moe.yield %a : f32
        } {layout = #moe.weight_layout<order = gate_up>,
           routing = #moe.routing<top_k = 8, softmax = all, renormalize = true>}
        -> tensor<?x2048xbf16>
    ```
  }];
  let arguments = (ins
    Moe_ProductTensor:$hidden,
    Optional<Moe_ScaleTensor>:$hidden_scale,
    Optional<Moe_DataTensor>:$gate_hidden,
    Optional<Moe_DataTensor>:$gate_weight,
    Optional<Moe_F32Tensor>:$gate_bias,
    Optional<Moe_DataTensor>:$router_logits,
    Optional<Moe_IdTensor>:$topk_ids,
    Optional<Moe_F32Tensor>:$topk_weights,
    Optional<Moe_F32Tensor>:$selection_bias,
    Optional<Moe_F32Tensor>:$expert_scale,
    Optional<Moe_I32Tensor>:$input_ids,
    Optional<Moe_I32Tensor>:$hash_table,
    Moe_ProductTensor:$w13,
    Optional<Moe_I32Tensor>:$w13_columns,
    Optional<Moe_DataTensor>:$w13_bias,
    Optional<Moe_ScaleTensor>:$w13_scale,
    Optional<Moe_ZeroTensor>:$w13_zero_point,
    Optional<Moe_F32Tensor>:$w13_global_scale,
    Optional<Moe_F32Tensor>:$w13_input_scale,
    Moe_ProductTensor:$w2,
    Optional<Moe_DataTensor>:$w2_bias,
    Optional<Moe_ScaleTensor>:$w2_scale,
    Optional<Moe_ZeroTensor>:$w2_zero_point,
    Optional<Moe_F32Tensor>:$w2_global_scale,
    Optional<Moe_F32Tensor>:$w2_input_scale,
    Optional<Moe_ProductTensor>:$shared_w13,
    Optional<Moe_I32Tensor>:$shared_w13_columns,
    Optional<Moe_DataTensor>:$shared_w13_bias,
    Optional<Moe_ScaleTensor>:$shared_w13_scale,
    Optional<Moe_ZeroTensor>:$shared_w13_zero_point,
    Optional<Moe_F32Tensor>:$shared_w13_global_scale,
    Optional<Moe_F32Tensor>:$shared_w13_input_scale,
    Optional<Moe_ProductTensor>:$shared_w2,
    Optional<Moe_DataTensor>:$shared_w2_bias,
    Optional<Moe_ScaleTensor>:$shared_w2_scale,
    Optional<Moe_ZeroTensor>:$shared_w2_zero_point,
    Optional<Moe_F32Tensor>:$shared_w2_global_scale,
    Optional<Moe_F32Tensor>:$shared_w2_input_scale,
    Optional<Moe_DataTensor>:$shared_gate,
    Optional<Moe_F32Tensor>:$shared_gate_bias,
    Optional<Moe_DataTensor>:$output_bias,
    Optional<Moe_DataTensor>:$latent_down,
    Optional<Moe_DataTensor>:$latent_up,
    Optional<Moe_DataTensor>:$latent_in_norm,
    Optional<Moe_DataTensor>:$experts_norm,
    Optional<Moe_DataTensor>:$latent_out_norm,
    Optional<Moe_I32Tensor>:$adapter_ids,
    Optional<Moe_DataTensor>:$lora_gate_a,
    Optional<Moe_DataTensor>:$lora_up_a,
    Optional<Moe_DataTensor>:$lora_gate_b,
    Optional<Moe_DataTensor>:$lora_up_b,
    Optional<Moe_DataTensor>:$lora_down_a,
    Optional<Moe_DataTensor>:$lora_down_b,
    Optional<Moe_I32Tensor>:$num_valid_tokens,
    Optional<Moe_I32Tensor>:$local_ids,
    Optional<Moe_ByteTensor>:$is_padding,
    Optional<Moe_I32Tensor>:$physical_ids,
    Optional<Moe_I32Tensor>:$replica_counts,
    OptionalAttr<Moe_RoutingAttr>:$routing,
    OptionalAttr<Moe_WeightLayoutAttr>:$layout,
    OptionalAttr<Moe_QuantAttr>:$weight_quant,
    OptionalAttr<Moe_QuantAttr>:$activation_quant,
    OptionalAttr<DictionaryAttr>:$quants,
    OptionalAttr<Moe_ActivationFormatAttr>:$format,
    OptionalAttr<Moe_MeshAttr>:$mesh,
    OptionalAttr<Moe_PlacementAttr>:$placement,
    OptionalAttr<DictionaryAttr>:$activation_params,
    OptionalAttr<DictionaryAttr>:$norms,
    OptionalAttr<F32Attr>:$shared_scale,
    DefaultValuedAttr<I64Attr, "0">:$num_zero_experts,
    UnitAttr:$weight_on_input, UnitAttr:$batch_invariant, UnitAttr:$unreduced,
    DefaultValuedAttr<I64Attr, "16384">:$max_tokens);
  let results = (outs Moe_DataTensor:$output, Optional<Moe_IdTensor>:$recorded_ids,
                      Optional<Moe_F32Tensor>:$recorded_weights, Optional<Moe_I32Tensor>:$expert_offsets);
  let regions = (region AnyRegion:$score, AnyRegion:$weight, AnyRegion:$activation,
                       AnyRegion:$shared_activation, AnyRegion:$key);
  let assemblyFormat = [{
    $hidden `:` type($hidden)
    oilist(
        `gate` `(` $gate_weight `:` type($gate_weight) `)`
      | `gate_hidden` `(` $gate_hidden `:` type($gate_hidden) `)`
      | `hidden_scale` `(` $hidden_scale `:` type($hidden_scale) `)`
      | `gate_bias` `(` $gate_bias `:` type($gate_bias) `)`
      | `logits` `(` $router_logits `:` type($router_logits) `)`
      | `ids` `(` $topk_ids `:` type($topk_ids) `)`
      | `weights` `(` $topk_weights `:` type($topk_weights) `)`
      | `selection_bias` `(` $selection_bias `:` type($selection_bias) `)`
      | `expert_scale` `(` $expert_scale `:` type($expert_scale) `)`
      | `input_ids` `(` $input_ids `:` type($input_ids) `)`
      | `hash_table` `(` $hash_table `:` type($hash_table) `)`
      | `num_valid_tokens` `(` $num_valid_tokens `:` type($num_valid_tokens) `)`
      | `local_ids` `(` $local_ids `:` type($local_ids) `)`
      | `is_padding` `(` $is_padding `:` type($is_padding) `)`
      | `physical_ids` `(` $physical_ids `:` type($physical_ids) `)`
      | `replica_counts` `(` $replica_counts `:` type($replica_counts) `)`
      | `latent_down` `(` $latent_down `:` type($latent_down) `)`
      | `latent_up` `(` $latent_up `:` type($latent_up) `)`
      | `latent_in_norm` `(` $latent_in_norm `:` type($latent_in_norm) `)`
      | `experts_norm` `(` $experts_norm `:` type($experts_norm) `)`
      | `latent_out_norm` `(` $latent_out_norm `:` type($latent_out_norm) `)`
      | `adapter_ids` `(` $adapter_ids `:` type($adapter_ids) `)`
      | `lora_gate_a` `(` $lora_gate_a `:` type($lora_gate_a) `)`
      | `lora_up_a` `(` $lora_up_a `:` type($lora_up_a) `)`
      | `lora_gate_b` `(` $lora_gate_b `:` type($lora_gate_b) `)`
      | `lora_up_b` `(` $lora_up_b `:` type($lora_up_b) `)`
      | `lora_down_a` `(` $lora_down_a `:` type($lora_down_a) `)`
      | `lora_down_b` `(` $lora_down_b `:` type($lora_down_b) `)`
      | `w13_columns` `(` $w13_columns `:` type($w13_columns) `)`
      | `w13_bias` `(` $w13_bias `:` type($w13_bias) `)`
      | `w13_scale` `(` $w13_scale `:` type($w13_scale) `)`
      | `w13_zero_point` `(` $w13_zero_point `:` type($w13_zero_point) `)`
      | `w13_global_scale` `(` $w13_global_scale `:` type($w13_global_scale) `)`
      | `w13_input_scale` `(` $w13_input_scale `:` type($w13_input_scale) `)`
      | `w2_bias` `(` $w2_bias `:` type($w2_bias) `)`
      | `w2_scale` `(` $w2_scale `:` type($w2_scale) `)`
      | `w2_zero_point` `(` $w2_zero_point `:` type($w2_zero_point) `)`
      | `w2_global_scale` `(` $w2_global_scale `:` type($w2_global_scale) `)`
      | `w2_input_scale` `(` $w2_input_scale `:` type($w2_input_scale) `)`
      | `shared_w13` `(` $shared_w13 `:` type($shared_w13) `)`
      | `shared_w13_columns` `(` $shared_w13_columns `:` type($shared_w13_columns) `)`
      | `shared_w13_bias` `(` $shared_w13_bias `:` type($shared_w13_bias) `)`
      | `shared_w13_scale` `(` $shared_w13_scale `:` type($shared_w13_scale) `)`
      | `shared_w13_zero_point` `(` $shared_w13_zero_point `:` type($shared_w13_zero_point) `)`
      | `shared_w13_global_scale` `(` $shared_w13_global_scale `:` type($shared_w13_global_scale) `)`
      | `shared_w13_input_scale` `(` $shared_w13_input_scale `:` type($shared_w13_input_scale) `)`
      | `shared_w2` `(` $shared_w2 `:` type($shared_w2) `)`
      | `shared_w2_bias` `(` $shared_w2_bias `:` type($shared_w2_bias) `)`
      | `shared_w2_scale` `(` $shared_w2_scale `:` type($shared_w2_scale) `)`
      | `shared_w2_zero_point` `(` $shared_w2_zero_point `:` type($shared_w2_zero_point) `)`
      | `shared_w2_global_scale` `(` $shared_w2_global_scale `:` type($shared_w2_global_scale) `)`
      | `shared_w2_input_scale` `(` $shared_w2_input_scale `:` type($shared_w2_input_scale) `)`
      | `shared_gate` `(` $shared_gate `:` type($shared_gate) `)`
      | `shared_gate_bias` `(` $shared_gate_bias `:` type($shared_gate_bias) `)`
      | `output_bias` `(` $output_bias `:` type($output_bias) `)`
    )
    `experts` `(` $w13 `,` $w2 `:` type($w13) `,` type($w2) `)`
    (`score` custom<ScalarRegion>($score)^)?
    (`key` custom<ScalarRegion>($key)^)?
    (`weight` custom<ScalarRegion>($weight)^)?
    `activation` custom<ScalarRegion>($activation)
    (`shared_activation` custom<ScalarRegion>($shared_activation)^)?
    attr-dict `->` type($output) (`record` `(` type($recorded_ids)^ `,` type($recorded_weights) `)`)?
    (`load` `(` type($expert_offsets)^ `)`)?
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Number of experts with weights on this rank.
    int64_t getNumLocalExperts();
    /// Number of logical experts of the whole layer (E), without zero experts.
    int64_t getNumExperts();
    /// Number of physical experts of the whole layer: each replica counts.
    int64_t getNumPhysicalExperts();
    /// Rows of the router: E + Z.
    int64_t getNumRouted();
    int64_t getTopK();
    int64_t getHiddenSize();
    /// Input width of routed experts: the latent size, else the hidden size.
    int64_t getExpertWidth();
    int64_t getIntermediateSize();
    /// Quantization of the gemm with the weight of this operand name; null if it is not quantized.
    ProductQuantAttr getProductQuant(::llvm::StringRef weight);
    /// Whether the caller gives rows that are quantized as the input of `w13`.
    bool isInputQuantized();
    /// The norm whose weight is the operand of this name; null if there is none.
    NormAttr getNorm(::llvm::StringRef weight);
    /// Whether the caller gives ids and weights, and nothing is routed.
    bool hasEntryIds() { return bool(getTopkWeights()); }
    /// Whether a softmax weighs the experts' sum and the shared expert.
    bool hasSharedSoftmax();
    /// Whether the activation takes a gate and an up value.
    bool isGated() { return getActivation().getNumArguments() == 2; }
  }];
}

def Moe_ParamOp : Moe_Op<"param", [Pure]> {
  let summary = "a parameter of the activation";
  let description = [{
    The f32 entry `name` of `activation_params` of the enclosing `moe.layer`. Only in the regions `activation` and
    `shared_activation`: an activation is written once and its numbers stay attributes. `moe-decompose` replaces it by
    the constant.

    ```mlir
    %limit = moe.param "limit"
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs F32:$value);
  let assemblyFormat = "$name attr-dict";
  let hasVerifier = 1;
}

def Moe_YieldOp : Moe_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["LayerOp", "RouteOp", "GroupedMatmulOp", "RowMapOp"]>]> {
  let summary = "ends a scalar region";
  let description = [{
    Returns the f32 result of a scalar region: a score, a key, a weight, an activated value, or the output of an
    epilogue.

    ```mlir
    moe.yield %y : f32
    ```
  }];
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

#endif
