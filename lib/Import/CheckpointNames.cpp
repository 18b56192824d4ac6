//===- CheckpointNames.cpp - names in Hugging Face checkpoints --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checkpoints differ in the names of tensors and in the layout of w13: separate
// gate and up tensors per expert, or one tensor for all experts. The table of
// families has the names and layout of each family; Packings.h has the tensors
// of a module.
//
//===----------------------------------------------------------------------===//

#include "CheckpointNames.h"

#include "Families/Family.h"
#include "Packings.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

bool CheckpointPart::isPerExpert() const {
  return StringRef(name).contains("{e}");
}

std::string CheckpointPart::getName(int64_t expert) const {
  auto [before, after] = StringRef(name).split("{e}");
  return isPerExpert() ? (before + Twine(expert) + after).str() : name;
}

bool CheckpointPart::matches(StringRef fileName, int64_t expert) const {
  std::string own = getName(expert);
  return fileName.consume_back(own) &&
         (fileName.empty() || fileName.ends_with("."));
}

namespace {

/// Splits alternative names at `|`.
SmallVector<StringRef> splitNames(StringRef names) {
  SmallVector<StringRef> result;
  names.split(result, '|', -1, /*KeepEmpty=*/false);
  return result;
}

/// The checkpoint layouts of one layer under the names of one family.
class FormBuilder {
public:
  /// With `fused`, tensors of all experts are accepted.
  FormBuilder(const LayerSpec &spec, const Names &names, bool fused)
      : spec(spec), names(names), fused(fused) {}

  std::vector<CheckpointForm> getForms(const TensorInfo &tensor) {
    StringRef name = tensor.name;
    quantization = spec.getQuantization(name);
    isRouted = name.starts_with("experts.");
    bool isOfExperts = isRouted || name.starts_with("shared_experts.");
    projection = isOfExperts ? takePlane(name) : Projection::Weight;
    // The rows of a per-expert vector are its elements.
    size_t rank = tensor.shape.size();
    bool isVector = rank == 1 || name.ends_with("_bias") ||
                    projection == Projection::GlobalScale;
    numRows = isVector ? tensor.shape.back() : tensor.shape[rank - 2];
    if (name == "gate.weight")
      addWhole(names.gate);
    else if (name == "gate.bias")
      addWhole(names.gateBias);
    else if (name == "gate.selection_bias")
      addWhole(names.selectionBias);
    else if (name == "gate.expert_scale")
      addWhole(names.expertScale);
    else if (name == "gate.hash_table")
      addWhole(names.hashTable);
    else if (isColumnOrder(name))
      addColumns();
    else if (isRouted)
      addExperts(name);
    else if (name.starts_with("shared_experts."))
      addShared(name);
    else if (name == "latent.down")
      addWhole(names.latent[0]);
    else if (name == "latent.up")
      addWhole(names.latent[1]);
    return std::move(forms);
  }

private:
  /// Suffixes of a module's name: the tensors that give `projection`.
  using Suffixes = SmallVector<CheckpointPart, 4>;
  static Suffixes makeSuffix(StringRef text) {
    CheckpointPart part;
    part.name = text.str();
    return {part};
  }
  Suffixes getModuleSuffixes() const {
    if (!quantization)
      return makeSuffix(".weight");
    Suffixes suffixes = getModuleTensors(*quantization, projection);
    bool hasOrder = isRouted ? spec.expertColumns : spec.sharedExperts->columns;
    for (CheckpointPart &part : suffixes)
      if (part.use == PartUse::GroupOfColumn && hasOrder)
        part.use = PartUse::ColumnOrder;
    return suffixes;
  }

  /// A part that covers all rows of the tensor.
  CheckpointPart makePart(StringRef module,
                          CheckpointPart part = CheckpointPart()) const {
    part.name = module.str() + part.name;
    part.numRows = numRows;
    return part;
  }

  /// Adds a form per alternative name that covers the whole tensor.
  void addWhole(StringRef alternatives,
                ArrayRef<CheckpointPart> suffixes = CheckpointPart()) {
    for (StringRef name : splitNames(alternatives)) {
      CheckpointForm form;
      for (const CheckpointPart &suffix : suffixes)
        form.push_back(makePart(name, suffix));
      if (!form.empty())
        forms.push_back(std::move(form));
    }
  }

  /// Input scale of a gemm. Each expert's modules state their own: gate and up,
  /// or down.
  void addInputScale(bool isFirst, ArrayRef<StringRef> gateUpDown) {
    ArrayRef<StringRef> modules = !isFirst         ? gateUpDown.slice(2, 1)
                                  : spec.isGated() ? gateUpDown.slice(0, 2)
                                                   : gateUpDown.slice(1, 1);
    SmallVector<SmallVector<StringRef>> alternatives;
    for (StringRef names : modules)
      alternatives.push_back(splitNames(names));
    for (size_t i = 0; i < alternatives.front().size(); ++i) {
      CheckpointForm form;
      for (ArrayRef<StringRef> names : alternatives) {
        if (i >= names.size())
          return;
        for (const CheckpointPart &suffix : getModuleSuffixes())
          form.push_back(makePart(names[i], suffix));
      }
      if (!form.empty())
        forms.push_back(std::move(form));
    }
  }

  /// Adds forms with separate gate and up rows.
  void addHalves(StringRef gates, StringRef ups,
                 ArrayRef<CheckpointPart> suffixes) {
    if (!spec.isGated())
      return addWhole(ups, suffixes);
    // A single scale for gate and up cannot be split.
    int64_t half = numRows / 2;
    if (half == 0 || suffixes.empty())
      return;
    for (auto [gate, up] : llvm::zip(splitNames(gates), splitNames(ups))) {
      CheckpointForm form, upParts;
      for (const CheckpointPart &suffix : suffixes) {
        CheckpointPart gatePart = makePart(gate, suffix);
        CheckpointPart upPart = makePart(up, suffix);
        gatePart.numRows = upPart.numRows = half;
        switch (spec.gateUpOrder) {
        case GateUpOrder::GateUp:
          upPart.firstRow = half;
          break;
        case GateUpOrder::UpGate:
          gatePart.firstRow = half;
          break;
        case GateUpOrder::Interleaved:
          upPart.firstRow = 1;
          gatePart.rowStride = upPart.rowStride = 2;
          break;
        }
        form.push_back(std::move(gatePart));
        upParts.push_back(std::move(upPart));
      }
      llvm::append_range(form, upParts);
      forms.push_back(std::move(form));
    }
  }

  /// Adds the column order. It is stored in the module of the weights; if it is
  /// absent, columns are in order.
  void addColumns() {
    Suffixes suffixes;
    if (quantization)
      suffixes = getModuleSuffixes();
    if (llvm::none_of(suffixes, [](const CheckpointPart &part) {
          return part.use == PartUse::ColumnOrder;
        }))
      return;
    llvm::erase_if(suffixes, [](const CheckpointPart &part) {
      return part.use != PartUse::Values && part.use != PartUse::ColumnOrder;
    });
    suffixes.front().use = PartUse::Unused;
    int64_t size =
        isRouted ? spec.getLocalIntermediateSize() : spec.getLocalSharedSize();
    numRows = spec.getFirstProductRows(size);
    if (isRouted)
      addHalves(names.expert[0], names.expert[1], suffixes);
    else
      addSharedFirst(suffixes);
  }

  void addExperts(StringRef name) {
    bool isBias = name.consume_back("_bias");
    bool isFirst = name == "experts.w13";
    // Checkpoints with separate experts have no biases.
    if (projection == Projection::InputScale)
      return addInputScale(isFirst,
                           {names.expert[0], names.expert[1], names.expert[2]});
    if (!isBias) {
      if (isFirst)
        addHalves(names.expert[0], names.expert[1], getModuleSuffixes());
      else
        addWhole(names.expert[2], getModuleSuffixes());
    }
    if (!fused)
      return;
    addFused(isFirst, isBias);
    if (!isBias && !quantization)
      addStacked(isFirst);
  }

  /// Parameters of the module of all experts, gate and up in one tensor. Blocks
  /// of mxfp4 run along K, which is the last dimension there.
  void addFused(bool isFirst, bool isBias) {
    std::optional<StringRef> suffix;
    if (quantization && !isBias) {
      suffix = getFusedSuffix(*quantization, projection);
      if (!suffix)
        return;
    }
    StringRef alternatives = isFirst ? names.fused[0] : names.fused[1];
    // In a layer without a gate this is the up projection alone.
    if (isFirst && !spec.isGated())
      alternatives = "experts.up_proj";
    for (StringRef name : splitNames(alternatives)) {
      CheckpointPart part = makePart(name);
      if (isBias)
        part.name += "_bias";
      else if (suffix)
        part.name += *suffix;
      else
        part.transposed = names.fusedTransposed;
      if (projection == Projection::Scale)
        part.use = PartUse::Scales;
      forms.push_back({std::move(part)});
    }
    if (isFirst && !isBias && !quantization)
      addHalves(names.fusedHalves[0], names.fusedHalves[1], CheckpointPart());
  }

  /// Adds forms with all experts stacked in the rows of one matrix.
  void addStacked(bool isFirst) {
    size_t before = forms.size();
    if (isFirst)
      addHalves(names.stacked[0], names.stacked[1], CheckpointPart());
    else
      addWhole(names.stacked[2]);
    for (CheckpointForm &form : llvm::drop_begin(forms, before))
      for (CheckpointPart &part : form) {
        part.flattened = true;
        part.transposed = !isFirst;
      }
  }

  void addShared(StringRef name) {
    if (name == "shared_experts.gate")
      return addWhole(names.sharedGate);
    if (projection == Projection::InputScale)
      return addInputScale(name == "shared_experts.w13",
                           {names.shared[0], names.shared[1], names.shared[2]});
    if (name == "shared_experts.w2")
      return addWhole(names.shared[2], getModuleSuffixes());
    addSharedFirst(getModuleSuffixes());
  }

  /// Gate and up as separate modules, or as one.
  void addSharedFirst(ArrayRef<CheckpointPart> suffixes) {
    addHalves(names.shared[0], names.shared[1], suffixes);
    if (fused && spec.gateUpOrder == GateUpOrder::GateUp)
      addWhole(names.sharedFused, suffixes);
  }

  const LayerSpec &spec;
  const Names &names;
  bool fused;
  /// The tensor belongs to the routed experts.
  bool isRouted = false;
  Projection projection = Projection::Weight;
  /// Quantization of the gemm that uses the tensor.
  std::optional<QuantizationSpec> quantization;
  int64_t numRows = 0;
  std::vector<CheckpointForm> forms;
};

/// Families whose names are accepted for a spec: those that store experts
/// separately.
constexpr StringLiteral kCommonTypes[] = {"qwen2_moe", "deepseek_v3",
                                          "ernie4_5_moe", "mixtral"};

} // namespace

std::vector<CheckpointForm> getCheckpointForms(const LayerSpec &spec,
                                               const TensorInfo &tensor) {
  std::vector<CheckpointForm> forms;
  auto add = [&](const Family *family, bool fused) {
    if (!family)
      return;
    for (CheckpointForm &form :
         FormBuilder(spec, family->names, fused).getForms(tensor))
      if (llvm::none_of(forms, [&](const CheckpointForm &other) {
            return other.front().name == form.front().name;
          }))
        forms.push_back(std::move(form));
  };
  if (!spec.modelType.empty())
    add(findFamily(spec.modelType), /*fused=*/true);
  else
    for (StringRef type : kCommonTypes)
      add(findFamily(type), /*fused=*/false);
  return forms;
}

} // namespace moec
