//===- MoeAttrs.td - attributes of the moe dialect -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_MOE_MOEATTRS_TD
#define MOEC_DIALECTS_MOE_MOEATTRS_TD

include "MoeDialect.td"

class Moe_Enum<string name, string summary, list<I32EnumCase> cases>
    : I32Enum<name, summary, cases> {
  let cppNamespace = "::moec::moe";
}

class Moe_Attr<string name, string attrMnemonic> : AttrDef<Moe_Dialect, name> {
  let mnemonic = attrMnemonic;
  let assemblyFormat = "`<` struct(params) `>`";
}

/// An enum parameter that is not printed when it has its default.
class Moe_DefaultEnum<EnumInfo enumInfo, string value> : EnumParameter<enumInfo> {
  let defaultValue = value;
}

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

def Moe_Select : Moe_Enum<"Select", "how a token's experts are chosen", [
  I32EnumCase<"TopK", 0, "top_k">,
  I32EnumCase<"PerGroup", 1, "per_group">,
  I32EnumCase<"Hash", 2, "hash">,
  I32EnumCase<"SparseMixer", 3, "sparsemixer">]>;

def Moe_Softmax : Moe_Enum<"Softmax", "the experts that a softmax covers", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"All", 1, "all">,
  I32EnumCase<"Selected", 2, "selected">]>;

def Moe_GroupScore : Moe_Enum<"GroupScore", "the key of an expert group", [
  I32EnumCase<"Max", 0, "max">,
  I32EnumCase<"Top2Sum", 1, "top2_sum">]>;

def Moe_NonFinite : Moe_Enum<"NonFinite", "replacement of a score that is not finite", [
  I32EnumCase<"Zero", 0, "zero">,
  I32EnumCase<"NegInf", 1, "neg_inf">,
  I32EnumCase<"Lowest", 2, "lowest">]>;

def Moe_RoutingAttr : Moe_Attr<"Routing", "routing"> {
  let summary = "how scores become expert ids and weights";
  let description = [{
    Routing operations that look at more than one expert. Elementwise operations are the `score`, `key` and `weight`
    regions of the op with this attribute. See docs/use/layers.md, formulas 2 to 5.

    | parameter | default | |
    |---|---|---|
    | `top_k` | | experts per token, from 1 to the number of experts |
    | `select` | `top_k` | `top_k`: the best of all experts; `per_group`: the `top_k / num_groups` best of each group; `hash`: a row of a table; `sparsemixer`: two experts by SparseMixer without jitter |
    | `num_groups` | 1 | number of contiguous expert groups of equal size; 1: no groups |
    | `topk_groups` | 1 | groups kept before the selection; only with `select = top_k` |
    | `group_score` | `max` | key of a group: the key of its best expert, or with `top2_sum` the sum of its two best keys |
    | `softmax` | `none` | `all`: over the scores of all experts, before the selection; `selected`: over the weights of the selected experts |
    | `renormalize` | false | `w /= sum(w) + renormalize_epsilon` |
    | `renormalize_epsilon` | 0 | f32, not negative; only with `renormalize` |
    | `scale` | 1 | f32 factor of every weight (`routed_scaling_factor` of models) |
    | `nonfinite` | `zero` | replacement of NaN and infinite scores: 0, or a key of -inf or -1e30 |

    Ties go to the lowest expert index, and ties between groups to the lowest group. Ids are in descending order of
    the key. `sparsemixer` needs `top_k = 2`, `softmax = none` and `nonfinite = neg_inf`. `hash` and `sparsemixer`
    have no groups.

    ```mlir
    #moe.routing<top_k = 8, num_groups = 8, topk_groups = 4, group_score = top2_sum,
                 renormalize = true, renormalize_epsilon = 1.0e-20 : f32, scale = 2.5 : f32,
                 nonfinite = neg_inf>
    ```
  }];
  let parameters = (ins
    "int64_t":$top_k,
    Moe_DefaultEnum<Moe_Select, "::moec::moe::Select::TopK">:$select,
    DefaultValuedParameter<"int64_t", "1">:$num_groups,
    DefaultValuedParameter<"int64_t", "1">:$topk_groups,
    Moe_DefaultEnum<Moe_GroupScore, "::moec::moe::GroupScore::Max">:$group_score,
    Moe_DefaultEnum<Moe_Softmax, "::moec::moe::Softmax::None">:$softmax,
    DefaultValuedParameter<"bool", "false">:$renormalize,
    OptionalParameter<"::mlir::FloatAttr">:$renormalize_epsilon,
    OptionalParameter<"::mlir::FloatAttr">:$scale,
    Moe_DefaultEnum<Moe_NonFinite, "::moec::moe::NonFinite::Zero">:$nonfinite
  );
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The epsilon added to the sum of weights; 0 when absent.
    double getEpsilonValue() const {
      return getRenormalizeEpsilon() ? getRenormalizeEpsilon().getValueAsDouble() : 0.0;
    }
    /// The factor of every weight; 1 when absent.
    double getScaleValue() const {
      return getScale() ? getScale().getValueAsDouble() : 1.0;
    }
  }];
}

def Moe_NormAttr : Moe_Attr<"Norm", "norm"> {
  let summary = "an RMS norm of rows";
  let description = [{
    With a weight w for each of W columns, in f32, `s = 1 / sqrt(sum_c x[c]^2 / W + epsilon)` and
    `y[c] = x[c] * s * (offset + w[c])`. With `weight_first`, x is first replaced by `D(x[c] * (offset + w[c]))`, and
    `y[c] = x[c] * s`. The sum's order is the schedule's. See docs/use/layers.md, "Norms".

    | parameter | default | |
    |---|---|---|
    | `epsilon` | | f32, above 0 |
    | `offset` | 0 | f32, added to each weight |
    | `weight_first` | false | the weight multiplies the row ahead of the norm |

    ```mlir
    #moe.norm<epsilon = 1.0e-5 : f32, offset = 1.0 : f32, weight_first = true>
    ```
  }];
  let parameters = (ins
    "::mlir::FloatAttr":$epsilon,
    OptionalParameter<"::mlir::FloatAttr">:$offset,
    DefaultValuedParameter<"bool", "false">:$weight_first
  );
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    double getEpsilonValue() const { return getEpsilon().getValueAsDouble(); }
    /// The number added to each weight; 0 when absent.
    double getOffsetValue() const { return getOffset() ? getOffset().getValueAsDouble() : 0.0; }
  }];
}

//===----------------------------------------------------------------------===//
// Weights: layout and quantization
//===----------------------------------------------------------------------===//

def Moe_GateUpOrder : Moe_Enum<"GateUpOrder", "order of gate and up rows in w13", [
  I32EnumCase<"GateUp", 0, "gate_up">,
  I32EnumCase<"UpGate", 1, "up_gate">,
  I32EnumCase<"Interleaved", 2, "interleaved">]>;

def Moe_WeightLayoutAttr : Moe_Attr<"WeightLayout", "weight_layout"> {
  let summary = "order of gate and up rows in the first gemm's weight";
  let description = [{
    Order of the rows of `w13` (`[..., N, K]`, K contiguous), with I = N / 2. `gate_up`: gate rows `0 .. I-1`, then up
    rows. `up_gate`: up rows first. `interleaved`: row 2i is gate i, row 2i+1 is up i. Biases and scales have the same
    order. A layer without a gate has no layout.

    ```mlir
    #moe.weight_layout<order = interleaved>
    ```
  }];
  let parameters = (ins EnumParameter<Moe_GateUpOrder>:$order);
}

def Moe_Granularity : Moe_Enum<"Granularity", "which elements share a scale", [
  I32EnumCase<"Tensor", 0, "tensor">,
  I32EnumCase<"Channel", 1, "channel">,
  I32EnumCase<"Token", 2, "token">,
  I32EnumCase<"Group", 3, "group">,
  I32EnumCase<"Block", 4, "block">]>;

def Moe_Packing : Moe_Enum<"Packing", "memory layout of elements", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"Pairs", 1, "pairs">,
  I32EnumCase<"Prepacked", 2, "prepacked">,
  I32EnumCase<"PrepackedF16", 3, "prepacked_f16">,
  I32EnumCase<"PrepackedE4M3", 4, "prepacked_e4m3">,
  I32EnumCase<"BF16", 5, "bf16">]>;

def Moe_PackingAttr : EnumAttr<Moe_Dialect, Moe_Packing, "packing"> {
  let summary = "memory layout of quantized elements";
  let description = [{
    The parameter `packing` of `#moe.quant` as an attribute of its own.

    ```mlir
    #moe.packing<prepacked_f16>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

/// Sizes in brackets, so that they can stand between other parameters.
def Moe_BlockParameter : OptionalArrayRefParameter<"int64_t"> {
  let parser = "::parseSizes($_parser)";
  let printer = "::printSizes($_printer, $_self)";
}

def Moe_QuantAttr : Moe_Attr<"Quant", "quant"> {
  let summary = "quantization of a tensor";
  let description = [{
    `value = (stored - zero_point) * scale * second_scale - minimum`. A tensor that is not quantized has no
    `#moe.quant`. With zero points, integers are unsigned. Without zero points or minima, i4 is stored as 0 to 15 with
    the implicit zero point 8; other types have the zero point 0.

    | parameter | |
    |---|---|
    | `storage` | element type in memory: f8E4M3FN, f8E5M2, f4E2M1FN, `!moe.nf4`, `!moe.code_book`, i8, i4 |
    | `scale` | element type of the scales: f32, bf16, f16, f8E8M0FNU, f8E4M3FN |
    | `granularity` | elements that share a scale: the whole `tensor`, an output `channel` (row of a weight), a `token` (row of an activation), a `group` of `block[1]` neighbours along K, or a `block` of `block[0] x block[1]` (rows x K) |
    | `block` | two sizes; only with `group` (`[1, n]`) and `block` |
    | `zero_point` | default false; true only with integer storage |
    | `dynamic` | default false; true for activations that the layer quantizes by their own maximum |
    | `packing` | default `none`. `pairs`, for 4-bit storage: elements 2i and 2i + 1 of a row share a byte, the first in the low half, and the tensor's element type is i8. `prepacked`, `prepacked_f16`, `prepacked_e4m3`: prepacked 4-bit or 8-bit weights from `moe.prepack`, to be multiplied by bf16, f16 or e4m3: the same bits in the order of Hopper's tensor cores, with bytes for the scales, zero points and minima described by `scale`, `granularity` and `block` (docs/design/gemm-hopper.md). `bf16`, from `moe-legalize-quant`, for rows of f8E4M3FN or i8: each quantized value is kept as bf16, multiplied by its scale with `power_of_two`; the element type is bf16 |
    | `second_scale` | default absent; f32: a factor of all scales of a matrix (gate and up rows have one each), only with `group` and `block`. Prepacked weights always have it, one per row |
    | `minimum` | default false; true for integer weights in groups whose zero-point tensor holds minima instead, in the type of the scales: f32, bf16 or f16 |
    | `power_of_two` | default false; true: scales of a `dynamic` group are rounded up to a power of two (UE8M0), stored as f32 |

    The last block or group of a row may be smaller where the op allows it. `QuantLayout.h` computes the number of
    scales, the scale of an element and the bytes of a row. Examples: block fp8, per-channel fp8, and mxfp4 weights:

    ```mlir
    #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>
    #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>
    #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
    ```
  }];
  let parameters = (ins
    "::mlir::Type":$storage,
    "::mlir::Type":$scale,
    EnumParameter<Moe_Granularity>:$granularity,
    Moe_BlockParameter:$block,
    DefaultValuedParameter<"bool", "false">:$zero_point,
    DefaultValuedParameter<"bool", "false">:$dynamic,
    Moe_DefaultEnum<Moe_Packing, "::moec::moe::Packing::None">:$packing,
    OptionalParameter<"::mlir::Type">:$second_scale,
    DefaultValuedParameter<"bool", "false">:$power_of_two,
    DefaultValuedParameter<"bool", "false">:$minimum
  );
  let genVerifyDecl = 1;
}

def Moe_ProductQuantAttr : Moe_Attr<"ProductQuant", "product_quant"> {
  let summary = "quantization of one gemm's operands";
  let description = [{
    `weight`: never `dynamic`, never of granularity `token`. `activation`: either `dynamic`, of granularity `tensor`,
    `token` or `group`, or static, of granularity `tensor` with a scale that is given. Without `activation`, rows are
    not quantized.

    ```mlir
    #moe.product_quant<weight = <storage = i4, scale = bf16, granularity = group, block = [1, 32], packing = pairs>>
    ```
  }];
  let parameters = (ins
    "::moec::moe::QuantAttr":$weight,
    OptionalParameter<"::moec::moe::QuantAttr">:$activation);
}

def Moe_Strategy : Moe_Enum<"Strategy", "how a target multiplies quantized operands", [
  I32EnumCase<"Native", 0, "native">,
  I32EnumCase<"Dequantize", 1, "dequantize">,
  I32EnumCase<"Prepack", 2, "prepack">]>;

def Moe_StrategyAttr : EnumAttr<Moe_Dialect, Moe_Strategy, "strategy"> {
  let summary = "strategy to multiply quantized operands";
  let description = [{
    The strategy that `moe-legalize-quant` chooses from the target's table. `native`: multiply stored elements and
    apply scales to sums, or let tensor cores apply them to blocks. `dequantize`: convert to the compute type in
    registers or a near cache, then multiply. `prepack`: bring weights into another format before the first run.

    ```mlir
    #moe.strategy<dequantize>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

//===----------------------------------------------------------------------===//
// Activations in flight, ranks
//===----------------------------------------------------------------------===//

def Moe_Format : Moe_Enum<"Format", "how dispatched rows are arranged", [
  I32EnumCase<"Standard", 0, "standard">,
  I32EnumCase<"Batched", 1, "batched_experts">,
  I32EnumCase<"Contiguous", 2, "contiguous">]>;

def Moe_ActivationFormatAttr : Moe_Attr<"ActivationFormat", "activation_format"> {
  let summary = "arrangement of the activations that experts get";
  let description = [{
    `standard`: tokens x width. `batched_experts`: experts x rows per expert x width, with counts. `contiguous`: rows
    sorted by expert, each group aligned to `alignment` rows (default 1; other formats have no alignment). The
    verifier of the layer accepts only `standard` so far.

    ```mlir
    #moe.activation_format<format = contiguous, alignment = 128>
    ```
  }];
  let parameters = (ins
    EnumParameter<Moe_Format>:$format,
    DefaultValuedParameter<"int64_t", "1">:$alignment);
  let genVerifyDecl = 1;
}

def Moe_MeshAttr : Moe_Attr<"Mesh", "mesh"> {
  let summary = "the ranks that share a layer";
  let description = [{
    `dp * pcp * tp` ranks (docs/use/parallel.md) in `dp * pcp` groups of `tp` ranks. Each group has its own tokens. All
    ranks of a group have the group's tokens; with `sp` they are split evenly among its ranks. Rank r has index
    `r % tp` in group `r / tp`, and that group has index `r / tp % pcp` among the groups that share a prompt (prefill
    context parallelism), which a layer treats like all others. With `num_experts`, each rank holds whole experts out
    of that many; without (0, the default), each rank holds a slice of every expert.

    ```mlir
    #moe.mesh<dp = 4, tp = 2, num_experts = 64>
    ```
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "1">:$dp, DefaultValuedParameter<"int64_t", "1">:$pcp,
                        DefaultValuedParameter<"int64_t", "1">:$tp,
                        DefaultValuedParameter<"int64_t", "0">:$num_experts,
                        DefaultValuedParameter<"bool", "false">:$sp);
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Number of groups with their own tokens.
    int64_t getNumGroups() const { return getDp() * getPcp(); }
    int64_t getNumRanks() const { return getNumGroups() * getTp(); }
    /// Number of ranks (with `sp`) or groups with their own tokens.
    int64_t getTokenRanks() const { return getSp() ? getNumRanks() : getNumGroups(); }
    /// Number of ranks along an axis.
    int64_t getSize(Axis axis) const { return axis == Axis::Dp ? getNumGroups() : getTp(); }
  }];
}

def Moe_Axis : Moe_Enum<"Axis", "an axis of the mesh", [
  I32EnumCase<"Dp", 0, "dp">,
  I32EnumCase<"Tp", 1, "tp">]>;

def Moe_AxisAttr : EnumAttr<Moe_Dialect, Moe_Axis, "axis"> {
  let summary = "an axis of the mesh";
  let description = [{
    `dp`: across the `dp * pcp` groups with their own tokens. `tp`: across the ranks of a group, which share its
    tokens.

    ```mlir
    #moe.axis<dp>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Moe_PlacementAttr : AttrDef<Moe_Dialect, "Placement"> {
  let mnemonic = "placement";
  let summary = "experts held by this rank";
  let description = [{
    Distinct global expert ids out of `num_experts`, at least one, in the order of the weights. Slots with another
    expert contribute nothing on this rank.

    ```mlir
    #moe.placement<8, local = [4, 5, 6, 7]>
    ```
  }];
  let parameters = (ins "int64_t":$num_experts, ArrayRefParameter<"int64_t">:$local);
  let assemblyFormat = "`<` $num_experts `,` `local` `=` `[` $local `]` `>`";
  let genVerifyDecl = 1;
}

#endif
