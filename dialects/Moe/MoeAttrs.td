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

    - `select`, `top_k`: which and how many experts (`k`).
    - `num_groups`, `topk_groups`, `group_score`: group-limited selection; 1 group is none.
    - `softmax`: `all` normalizes the region's scores over all experts before selection;
      `selected` normalizes the weights over the selected ones after it.
    - `renormalize`, `renormalize_epsilon`: `w /= sum(w) + epsilon`.
    - `scale`: factor of every weight (the models' `routed_scaling_factor`).
    - `nonfinite`: rule for NaN and infinite scores.

    Ties go to the lowest expert index; ids come in descending order of the key.

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
    Rows of `w13` (`[..., N, K]`, K contiguous). `gate_up`: gate rows `0..I-1`, then up rows.
    `up_gate`: up rows first. `interleaved`: row 2i is gate i, row 2i+1 is up i. A layer without a
    gate carries no layout.
  }];
  let parameters = (ins EnumParameter<Moe_GateUpOrder>:$order);
}

def Moe_Granularity : Moe_Enum<"Granularity", "which elements share a scale", [
  I32EnumCase<"Tensor", 0, "tensor">,
  I32EnumCase<"Channel", 1, "channel">,
  I32EnumCase<"Token", 2, "token">,
  I32EnumCase<"Group", 3, "group">,
  I32EnumCase<"Block", 4, "block">]>;

/// Sizes in brackets, so that they can stand between other parameters.
def Moe_BlockParameter : OptionalArrayRefParameter<"int64_t"> {
  let parser = "::parseSizes($_parser)";
  let printer = "::printSizes($_printer, $_self)";
}

def Moe_QuantAttr : Moe_Attr<"Quant", "quant"> {
  let summary = "how a tensor is quantized";
  let description = [{
    `value = (stored - zero_point) * scale`. `storage` is the element type in memory, `scale` the
    element type of the scales. `granularity` says which elements share one: the whole `tensor`,
    one output `channel` (row of a weight), one `token` (row of an activation), a `group` of
    `block[1]` neighbours along the contracted dimension, or a `block` of `block[0] x block[1]`
    (rows x contracted). `dynamic` activations are quantized inside the layer from their own maximum.
    Block fp8 weights are `#moe.quant<storage = f8E4M3FN, scale = f32, granularity = block,
    block = [128, 128]>`; mxfp4 weights `#moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU,
    granularity = group, block = [1, 32]>`.
  }];
  let parameters = (ins
    "::mlir::Type":$storage,
    "::mlir::Type":$scale,
    EnumParameter<Moe_Granularity>:$granularity,
    Moe_BlockParameter:$block,
    DefaultValuedParameter<"bool", "false">:$zero_point,
    DefaultValuedParameter<"bool", "false">:$dynamic
  );
  let genVerifyDecl = 1;
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
    `contiguous`: rows sorted by expert, each expert's run aligned to `alignment` rows. Only
    `standard` is compiled so far; the others are refused by the verifier of the layer.
  }];
  let parameters = (ins
    EnumParameter<Moe_Format>:$format,
    DefaultValuedParameter<"int64_t", "1">:$alignment);
  let genVerifyDecl = 1;
}

def Moe_MeshAttr : Moe_Attr<"Mesh", "mesh"> {
  let summary = "the ranks that share a layer";
  let description = [{
    `num_ranks` devices, this one being `rank`. Only one rank is compiled so far.
  }];
  let parameters = (ins "int64_t":$num_ranks, DefaultValuedParameter<"int64_t", "0">:$rank);
  let genVerifyDecl = 1;
}

def Moe_PlacementAttr : AttrDef<Moe_Dialect, "Placement"> {
  let mnemonic = "placement";
  let summary = "which experts this rank holds";
  let description = [{
    Global expert ids of `num_experts`, in the order in which the weights hold them. Slots that
    chose another expert contribute nothing here. Example: `#moe.placement<8, local = [4, 5, 6, 7]>`.
  }];
  let parameters = (ins "int64_t":$num_experts, ArrayRefParameter<"int64_t">:$local);
  let assemblyFormat = "`<` $num_experts `,` `local` `=` `[` $local `]` `>`";
  let genVerifyDecl = 1;
}

#endif
