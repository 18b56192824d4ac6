//===- GgufNames.cpp - tensor names and blocks of GGUF files --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: gguf/constants.py of ggml's Python package, ggml-common.h. A tensor
// holds all experts; blocks also hold their scales.
//
//===----------------------------------------------------------------------===//

#include "GgufNames.h"

#include "CheckpointNames.h"
#include "Packings.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

using Part = BlockPacking::Part;

/// Offset and count of a block's elements or scales, as in `BlockPacking`.
struct Span {
  int64_t first, count;
  Part part = Part::Bytes;
};

/// A block type of ggml and the quantization of its weights; `minima` has 0
/// bytes if there are none.
struct Block {
  StringLiteral name;
  StorageType storage;
  ScaleType scale;
  int64_t groupColumns, bytes;
  Span elements, scales, minima = {0, 0};
};

constexpr Block kBlocks[] = {
    {"q4_0",
     StorageType::Int4,
     ScaleType::F16,
     32,
     18,
     {2, 16, Part::Halves},
     {0, 2}},
    {"q8_0", StorageType::Int8, ScaleType::F16, 32, 34, {2, 32}, {0, 2}},
    {"q4_K",
     StorageType::Int4,
     ScaleType::F32,
     32,
     144,
     {16, 128, Part::RunsOfHalves},
     {0, 32, Part::SixBitScales},
     {0, 32, Part::SixBitMinima}},
    {"q5_K",
     StorageType::Int8,
     ScaleType::F32,
     32,
     176,
     {16, 256, Part::FiveBits},
     {0, 32, Part::SixBitScales},
     {0, 32, Part::SixBitMinima}},
    {"q6_K",
     StorageType::Int8,
     ScaleType::F32,
     16,
     210,
     {0, 256, Part::SixBits},
     {192, 64, Part::ScaledBytes}},
    {"mxfp4",
     StorageType::Fp4E2M1,
     ScaleType::E8M0,
     32,
     17,
     {1, 16, Part::Halves},
     {0, 1}},
    {"nvfp4",
     StorageType::Fp4E2M1,
     ScaleType::E4M3,
     16,
     36,
     {4, 32, Part::HalvesOf16},
     {0, 4}},
};

OperandQuantization getQuantization(const Block &block) {
  OperandQuantization weight;
  weight.storage = block.storage;
  weight.scale = block.scale;
  weight.granularity = Granularity::Group;
  weight.blockRows = 1;
  weight.blockColumns = block.groupColumns;
  weight.hasMinimum = block.minima.count != 0;
  weight.hasGlobalScale = block.scale == ScaleType::E4M3;
  return weight;
}

const Block *findBlock(const OperandQuantization &weight) {
  const auto *block = llvm::find_if(kBlocks, [&](const Block &one) {
    return weight == getQuantization(one);
  });
  return block == std::end(kBlocks) ? nullptr : block;
}

/// Null if the block does not have it.
const Span *findSpan(const Block &block, Projection projection) {
  switch (projection) {
  case Projection::Weight:
    return &block.elements;
  case Projection::Scale:
    return &block.scales;
  case Projection::Minimum:
    return &block.minima;
  default:
    return nullptr;
  }
}

/// GGUF names of a layer tensor: one, or separate gate and up, or both in one
/// with the gate rows of an expert first. Further rows are of other names: a
/// dense part beside the experts is a shared expert of some models.
struct Names {
  StringLiteral tensor, first, second = "", both = "";
};

constexpr Names kNames[] = {
    {"gate.weight", "ffn_gate_inp.weight"},
    {"gate.bias", "ffn_gate_inp.bias"},
    {"gate.selection_bias", "exp_probs_b.bias"},
    {"gate.hash_table", "ffn_gate_tid2eid.weight"},
    {"gate.expert_scale", "ffn_down_exps.scale"},
    {"experts.w13", "ffn_gate_exps.weight", "ffn_up_exps.weight",
     "ffn_gate_up_exps.weight"},
    {"experts.w13_bias", "ffn_gate_exps.bias", "ffn_up_exps.bias",
     "ffn_gate_up_exps.bias"},
    {"experts.w2", "ffn_down_exps.weight"},
    {"experts.w2_bias", "ffn_down_exps.bias"},
    {"experts.w13_global_scale", "ffn_gate_exps.scale", "ffn_up_exps.scale"},
    {"experts.w2_global_scale", "ffn_down_exps.scale"},
    {"shared_experts.w13", "ffn_gate_shexp.weight", "ffn_up_shexp.weight"},
    {"shared_experts.w2", "ffn_down_shexp.weight"},
    {"shared_experts.w13", "ffn_gate.weight", "ffn_up.weight"},
    {"shared_experts.w2", "ffn_down.weight"},
    {"shared_experts.gate", "ffn_gate_inp_shexp.weight"},
    {"latent.down", "ffn_latent_down.weight"},
    {"latent.up", "ffn_latent_up.weight"},
    {"latent.down", "ffn_routed_down.weight"},
    {"latent.up", "ffn_routed_up.weight"},
    {"norms.latent_out", "ffn_routed_norm.weight"},
};

/// Adds the tensors of the narrow experts that groups of experts share: rows of
/// w13 behind the gate and behind the up rows, columns of w2.
void addAdjugate(const LayerSpec &spec, CheckpointForm &form) {
  int64_t own = spec.intermediateSize - spec.adjugate->width;
  bool isFirst = form.size() == 2;
  CheckpointForm shared = form;
  for (CheckpointPart &part : form)
    (isFirst ? part.numRows : part.numColumns) = own;
  for (CheckpointPart &part : shared) {
    auto [before, after] = StringRef(part.name).split("_exps");
    part.name = before.str() + "_chexps" + after.str();
    part.expertsPerTensor = spec.adjugate->numExperts;
    if (isFirst) {
      part.numRows = spec.adjugate->width;
      part.firstRow += own;
    } else {
      part.firstColumn = own;
      part.numColumns = spec.adjugate->width;
      part.factor = spec.adjugate->factor;
    }
  }
  llvm::append_range(form, shared);
}

/// Adds the forms of a layer tensor under one row of names.
void addForms(const LayerSpec &spec, const Names &names, CheckpointPart part,
              std::vector<CheckpointForm> &forms) {
  bool isGated = !names.second.empty() && spec.isGated();
  bool haveShared = spec.adjugate && names.tensor.starts_with("experts.");
  part.name =
      (names.second.empty() || isGated ? names.first : names.second).str();
  if (!isGated) {
    if (names.tensor == "gate.weight" && spec.routing.splitGate)
      return forms.push_back(splitGate(std::move(part)));
    forms.push_back({std::move(part)});
    if (haveShared)
      addAdjugate(spec, forms.back());
    return;
  }
  CheckpointPart up = part, both = part;
  both.name = names.both.str();
  up.name = names.second.str();
  part.numRows = up.numRows = part.numRows / 2;
  switch (spec.gateUpOrder) {
  case GateUpOrder::GateUp:
    up.firstRow = up.numRows;
    break;
  case GateUpOrder::UpGate:
    part.firstRow = part.numRows;
    break;
  case GateUpOrder::Interleaved:
    up.firstRow = 1;
    part.rowStride = up.rowStride = 2;
    break;
  }
  forms.push_back({part, up});
  if (haveShared)
    addAdjugate(spec, forms.back());
  else if (!both.name.empty() && spec.gateUpOrder == GateUpOrder::GateUp)
    forms.push_back({both});
}

} // namespace

std::optional<OperandQuantization> getBlockQuantization(StringRef kind) {
  const auto *block = llvm::find_if(
      kBlocks, [&](const Block &one) { return one.name == kind; });
  if (block == std::end(kBlocks))
    return std::nullopt;
  return getQuantization(*block);
}

std::vector<CheckpointForm> getGgufForms(const LayerSpec &spec,
                                         const TensorInfo &tensor) {
  StringRef name = tensor.name;
  const std::optional<QuantizationSpec> &quantization =
      spec.getQuantization(name);
  CheckpointPart part;
  Projection projection = Projection::Weight;
  // Global scales have a tensor of their own, one number per expert.
  bool isGlobal = name.ends_with("_global_scale");
  if (isGlobal) {
    part.use = PartUse::Scales;
  } else if (quantization && !name.ends_with("_bias")) {
    projection = takePlane(name);
    const Block *block = findBlock(quantization->weight);
    const Span *found = block ? findSpan(*block, projection) : nullptr;
    if (!found)
      return {};
    part.blocks.type = block->name.str();
    part.blocks.bytes = block->bytes;
    part.blocks.first = found->first;
    part.blocks.count = found->count;
    part.blocks.part = found->part;
    // Scales of q4_0 and q6_K may be negative: they have the sign of the
    // largest element.
    bool haveSign =
        block->scale != ScaleType::E8M0 && block->scale != ScaleType::E4M3;
    if (projection != Projection::Weight)
      part.use = haveSign ? PartUse::AnyScales : PartUse::Scales;
  }
  size_t rank = tensor.shape.size();
  bool isVector = rank == 1 || isGlobal || name.ends_with("_bias");
  part.numRows = isVector ? tensor.shape.back() : tensor.shape[rank - 2];
  std::vector<CheckpointForm> forms;
  for (const Names &names : kNames)
    if (names.tensor == name)
      addForms(spec, names, part, forms);
  return forms;
}

} // namespace moec
