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

def Moe_Softmax : Moe_Enum<"Softmax", "over which experts a softmax runs", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"All", 1, "all">,
  I32EnumCase<"Selected", 2, "selected">]>;

def Moe_GroupScore : Moe_Enum<"GroupScore", "the key of an expert group", [
  I32EnumCase<"Max", 0, "max">,
  I32EnumCase<"Top2Sum", 1, "top2_sum">]>;

def Moe_NonFinite : Moe_Enum<"NonFinite", "what a score that is not finite becomes", [
  I32EnumCase<"Zero", 0, "zero">,
  I32EnumCase<"NegInf", 1, "neg_inf">,
  I32EnumCase<"Lowest", 2, "lowest">]>;

def Moe_RoutingAttr : Moe_Attr<"Routing", "routing"> {
  let summary = "how scores become expert ids and weights";
  let description = [{
    The parts of routing that look at more than one expert; the elementwise parts are the `score`
    and `weight` regions of the op that carries this attribute. docs/layers.md, formulas 2 to 5.

    | parameter | default | |
    |---|---|---|
    | `top_k` | | experts per token, at least 1, at most the experts there are |
    | `select` | `top_k` | `top_k` the best of all; `per_group` the `top_k / num_groups` best of each group; `hash` a row of a table; `sparsemixer` the two of SparseMixer, without its jitter |
    | `num_groups` | 1 | contiguous groups of equal size; 1 is none |
    | `topk_groups` | 1 | groups that stay in the selection, with `select = top_k` |
    | `group_score` | `max` | key of a group: its best expert's, or with `top2_sum` the sum of its two best |
    | `softmax` | `none` | `all`: scores are normalized over all experts, before the selection; `selected`: weights over the selected ones, after it |
    | `renormalize` | false | `w /= sum(w) + renormalize_epsilon` |
    | `renormalize_epsilon` | 0 | f32, not negative; only with `renormalize` |
    | `scale` | 1 | f32 factor of every weight (the models' `routed_scaling_factor`) |
    | `nonfinite` | `zero` | what NaN and infinite scores become: 0, or keys of -inf or -1e30 |

    Ties go to the lowest expert index, and between groups to the lowest group; ids come in
    descending order of the key. `sparsemixer` has `top_k = 2`, `softmax = none` and `nonfinite =
    neg_inf`. `hash` and `sparsemixer` have no groups.

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

//===----------------------------------------------------------------------===//
// Weights: layout and quantization
//===----------------------------------------------------------------------===//

def Moe_GateUpOrder : Moe_Enum<"GateUpOrder", "order of gate and up rows in w13", [
  I32EnumCase<"GateUp", 0, "gate_up">,
  I32EnumCase<"UpGate", 1, "up_gate">,
  I32EnumCase<"Interleaved", 2, "interleaved">]>;

def Moe_WeightLayoutAttr : Moe_Attr<"WeightLayout", "weight_layout"> {
  let summary = "where gate and up rows lie in the first product's weight";
  let description = [{
    Rows of `w13` (`[..., N, K]`, K contiguous), with I = N / 2. `gate_up`: gate rows `0 .. I-1`, then
    up rows. `up_gate`: up rows first. `interleaved`: row 2i is gate i, row 2i+1 is up i. Biases and
    scales have the same order. A layer without a gate carries no layout.

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

def Moe_Packing : Moe_Enum<"Packing", "how elements lie in memory", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"Pairs", 1, "pairs">,
  I32EnumCase<"Fragments", 2, "fragments">,
  I32EnumCase<"FragmentsF16", 3, "fragments_f16">,
  I32EnumCase<"FragmentsE4M3", 4, "fragments_e4m3">,
  I32EnumCase<"BF16", 5, "bf16">]>;

def Moe_PackingAttr : EnumAttr<Moe_Dialect, Moe_Packing, "packing"> {
  let summary = "how elements lie in memory";
  let description = [{
    What `packing` of `#moe.quant` is, where it stands by itself.

    ```mlir
    #moe.packing<fragments_f16>
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
  let summary = "how a tensor is quantized";
  let description = [{
    `value = (stored - zero_point) * scale * second_scale - minimum`. What is not quantized carries no `#moe.quant`. Without
    zero points and minima of its own i4, which is stored as 0 to 15, has the zero point 8; others have 0. With zero points,
    integers are unsigned.

    | parameter | |
    |---|---|
    | `storage` | element type in memory: f8E4M3FN, f8E5M2, f4E2M1FN, `!moe.nf4`, `!moe.code_book`, i8, i4 |
    | `scale` | element type of the scales: f32, bf16, f16, f8E8M0FNU, f8E4M3FN |
    | `granularity` | which elements share a scale: the whole `tensor`, one output `channel` (row of a weight), one `token` (row of an activation), a `group` of `block[1]` neighbours along the contracted dimension, or a `block` of `block[0] x block[1]` (rows x contracted) |
    | `block` | two sizes, with `group` (`[1, n]`) and `block` only |
    | `zero_point` | false; true with integer storage only |
    | `dynamic` | false; true for activations quantized inside the layer from their own maximum |
    | `packing` | `pairs` with storage of 4 bits: elements 2i and 2i + 1 of a row in one byte, the first in its low half; the tensor's elements are then bytes, i8; `fragments`, which `moe.repack` makes of weights of 4 or 8 bits to be multiplied by bf16, `fragments_f16`, by f16, or `fragments_e4m3`, by e4m3: the same bits in the order of Hopper's tensor cores, with bytes for scales, zero points and minima of `scale`, `granularity` and `block` (docs/decoded-products.md); `bf16`, which `moe-legalize-quant` makes of rows of f8E4M3FN or i8: each code is kept as the bf16 of its number, with `power_of_two` times its scale, and the tensor's elements are bf16; else `none` |
    | `second_scale` | absent; f32 for a factor of all scales of a matrix (of gate and up rows one each), with `group` and `block` only; with `fragments` always, one of each row |
    | `minimum` | false; true for weights of integer storage in groups whose tensor of zero points has minima in their place, of the type of the scales, f32, bf16 or f16 |
    | `power_of_two` | false; true for scales that a `dynamic` group finds, which become the least power of two that is not below (UE8M0), and stay f32 |

    The last block or group of a row may be smaller where the op allows it. How many scales there are, which one is
    whose, and how many bytes a row takes: QuantLayout.h. Block fp8, fp8 by channel, and mxfp4 weights:

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
  let summary = "how the operands of one product are quantized";
  let description = [{
    `weight` of a weight, which is never `dynamic` nor of granularity `token`; `activation` of the rows it is multiplied
    with: `dynamic`, of granularity `tensor`, `token` or `group`, or of granularity `tensor` by a scale that is given.
    Absent, they stay as they are.

    ```mlir
    #moe.product_quant<weight = <storage = i4, scale = bf16, granularity = group, block = [1, 32], packing = pairs>>
    ```
  }];
  let parameters = (ins
    "::moec::moe::QuantAttr":$weight,
    OptionalParameter<"::moec::moe::QuantAttr">:$activation);
}

def Moe_Way : Moe_Enum<"Way", "how a target multiplies quantized operands", [
  I32EnumCase<"Native", 0, "native">,
  I32EnumCase<"Decode", 1, "decode">,
  I32EnumCase<"Repack", 2, "repack">]>;

def Moe_WayAttr : EnumAttr<Moe_Dialect, Moe_Way, "way"> {
  let summary = "how a target multiplies quantized operands";
  let description = [{
    `native`: stored elements are multiplied as they are, scales are applied to sums, or by tensor cores to blocks. `decode`: elements become the
    compute type in registers or a near cache, then are multiplied. `repack`: weights are brought into another
    format ahead of the first run. `moe-legalize-quant` chooses it by the target's table.

    ```mlir
    #moe.way<decode>
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
  let summary = "the form in which activations reach the experts";
  let description = [{
    `standard`: tokens x width. `batched_experts`: experts x rows per expert x width with counts.
    `contiguous`: rows sorted by expert, each expert's run aligned to `alignment` rows (default 1; the
    other formats have none). Only `standard` is compiled so far; the others are refused by the
    verifier of the layer.

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
    `dp * pcp * tp` ranks (docs/parallel.md): `dp * pcp` groups with tokens of their own, of `tp` ranks each, which all
    have the tokens of their group; with `sp` each rank of a group has a part of them, as many as the others. Rank r is
    number `r % tp` of group `r / tp`, which is number `r / tp % pcp` of those that share a prompt (prefill context
    parallelism): for a layer groups like the others. With `num_experts` each rank has whole experts, out of so many;
    without (0, the default) a part of every expert.

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
    /// Groups of ranks with tokens of their own.
    int64_t getNumGroups() const { return getDp() * getPcp(); }
    int64_t getNumRanks() const { return getNumGroups() * getTp(); }
    /// Ranks, or groups of ranks, with tokens of their own.
    int64_t getTokenRanks() const { return getSp() ? getNumRanks() : getNumGroups(); }
    /// Ranks along an axis.
    int64_t getSize(Axis axis) const { return axis == Axis::Dp ? getNumGroups() : getTp(); }
  }];
}

def Moe_Axis : Moe_Enum<"Axis", "an axis of the mesh", [
  I32EnumCase<"Dp", 0, "dp">,
  I32EnumCase<"Tp", 1, "tp">]>;

def Moe_AxisAttr : EnumAttr<Moe_Dialect, Moe_Axis, "axis"> {
  let summary = "an axis of the mesh";
  let description = [{
    `dp`: groups with tokens of their own, `dp * pcp` of them; `tp`: ranks of a group, which share its tokens.

    ```mlir
    #moe.axis<dp>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Moe_PlacementAttr : AttrDef<Moe_Dialect, "Placement"> {
  let mnemonic = "placement";
  let summary = "which experts this rank holds";
  let description = [{
    Distinct global expert ids out of `num_experts`, at least one, in the order in which the weights
    hold them. Slots that chose another expert contribute nothing here.

    ```mlir
    #moe.placement<8, local = [4, 5, 6, 7]>
    ```
  }];
  let parameters = (ins "int64_t":$num_experts, ArrayRefParameter<"int64_t">:$local);
  let assemblyFormat = "`<` $num_experts `,` `local` `=` `[` $local `]` `>`";
  let genVerifyDecl = 1;
}

#endif
