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

#include <deque>

using namespace llvm;

namespace moec {

bool CheckpointPart::isPerExpert() const {
  return StringRef(name).contains("{e}");
}

std::string CheckpointPart::getName(int64_t expert) const {
  auto [before, after] = StringRef(name).split("{e}");
  int64_t number = firstNumber + expert / expertsPerTensor;
  return isPerExpert() ? (before + Twine(number) + after).str() : name;
}

bool CheckpointPart::isOf(int64_t expert) const {
  return onlyExperts.empty() || is_contained(onlyExperts, expert);
}

bool CheckpointPart::matches(StringRef fileName, int64_t expert) const {
  std::string own = getName(expert);
  return fileName.consume_back(own) &&
         (fileName.empty() || fileName.ends_with("."));
}

std::string numberName(StringRef name, const LayerSpec &spec) {
  std::string result;
  for (; !name.empty(); name = name.drop_front()) {
    bool isLayer = name.starts_with("{l}");
    if (isLayer || name.starts_with("{b}")) {
      result +=
          std::to_string((isLayer ? spec.layerIndex : spec.bank).value_or(0));
      name = name.drop_front(2);
    } else {
      result += name.front();
    }
  }
  return result;
}

std::string putExpertLast(StringRef alternatives) {
  std::string result;
  SmallVector<StringRef> names;
  alternatives.split(names, '|', -1, /*KeepEmpty=*/false);
  for (StringRef name : names) {
    auto [before, after] = name.split("{e}.");
    if (!after.empty() && !after.contains('.'))
      result += (result.empty() ? "" : "|") + (before + after + ".{e}").str();
  }
  return result;
}

CheckpointForm splitGate(CheckpointPart part) {
  part.numRows /= 2;
  part.use = PartUse::RoundedValues;
  CheckpointPart remainders = part;
  remainders.use = PartUse::Remainders;
  remainders.firstRow = part.numRows;
  return {part, remainders};
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
    numColumns = tensor.shape.back();
    if (name == "gate.weight")
      addGate();
    else if (name == "gate.hidden")
      addWhole(names.gateHidden);
    else if (name == "output_bias")
      addWhole(names.outputBias);
    else if (name == "gate.bias")
      addWhole(names.gateBias);
    else if (name == "gate.selection_bias")
      addSelectionBias();
    else if (name == "gate.expert_scale")
      addExpertScale();
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
    else if (name == "norms.latent_in")
      addWhole(names.norms[0]);
    else if (name == "norms.expert")
      addWhole(names.norms[1]);
    else if (name == "norms.latent_out")
      addWhole(names.norms[2]);
    if (!isOfExperts || name == "shared_experts.gate")
      if (const StoredModules *stored = spec.findStored(name))
        addDense(*stored->schemes.front());
    return std::move(forms);
  }

private:
  /// Replaces the forms of a dense weight by those of its quantized matrix.
  void addDense(const QuantizationSpec &scheme) {
    for (CheckpointForm &form : forms) {
      StringRef module = form.front().name;
      module.consume_back(".weight");
      if (auto matrix =
              makeStoredMatrix(scheme, module, {1, numRows, numColumns}))
        form = makeStoredParts(matrix, numRows);
    }
  }

  /// Suffixes of a module's or a parameter's name: the tensors that give
  /// `projection`.
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
    // The layer has the biases itself.
    if (isRouted ? spec.expertBias : spec.sharedExperts->bias)
      llvm::erase_if(suffixes, [](const CheckpointPart &part) {
        return part.name == ".bias";
      });
    return suffixes;
  }
  /// The suffixes in each way of naming them.
  SmallVector<Suffixes, 4> getSuffixes(bool isParameter, bool isBias) const {
    if (isBias)
      return {makeSuffix(isParameter ? "_bias" : ".bias")};
    if (!isParameter)
      return {getModuleSuffixes()};
    if (!quantization)
      return {makeSuffix("")};
    // No tool writes an order of columns for all experts together.
    if (isRouted && spec.expertColumns)
      return {};
    return getParameterTensors(*quantization, projection);
  }

  /// A part that covers all rows of the tensor.
  CheckpointPart makePart(StringRef module,
                          CheckpointPart part = CheckpointPart()) const {
    part.name = joinName(numberName(module, spec), part.name);
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

  void addGate() {
    for (auto [i, name] : llvm::enumerate(splitNames(names.gate))) {
      CheckpointPart part = makePart(name);
      part.maybeTransposed = names.gateTransposed;
      part.transposed = names.gateTransposed && i == 0;
      if (spec.routing.splitGate)
        forms.push_back(splitGate(std::move(part)));
      else
        forms.push_back({std::move(part)});
    }
    SmallVector<StringRef> others;
    names.otherRouters.split(others, ' ', -1, /*KeepEmpty=*/false);
    for (CheckpointForm &form : forms)
      for (StringRef name : others) {
        form.push_back(makePart(name));
        form.back().use = PartUse::Unused;
        form.back().isOptional = true;
      }
  }

  void addExpertScale() {
    addWhole(names.expertScale);
    for (CheckpointForm &form : forms)
      form.front().isSplat = names.isOneScale;
  }

  void addSelectionBias() {
    // The loader sets those of the last experts.
    numRows -= spec.numAlwaysChosen;
    addWhole(names.selectionBias);
    if (!names.partOfTwo || forms.empty())
      return;
    // The first name is that of both parts' tensor.
    forms.front().front().piece = *names.partOfTwo;
    forms.front().front().numPieces = 2;
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
        placeGate(gatePart, half);
        placeUp(upPart, half);
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

  /// One way to store the matrices of experts. Alternative names are separated
  /// by `|`.
  struct ExpertForm {
    StringRef gate, up, down;
    /// Gate and up in one.
    StringRef both = {};
    /// Names are those of parameters, not of modules: other suffixes.
    bool isParameter = false;
    /// Parameters are published in both orders.
    bool transposed = false;
    /// All experts are in the rows of one matrix; down is transposed.
    bool flattened = false;
  };

  /// The table of forms under the names of a family.
  SmallVector<ExpertForm, 6> getExpertForms() {
    SmallVector<ExpertForm, 6> forms;
    StringRef gate = names.expert[0];
    bool isInOrder = spec.gateUpOrder == GateUpOrder::GateUp;
    // A module per expert.
    forms.push_back({gate, names.expert[1], names.expert[2],
                     fused && isInOrder
                         ? derive(gate, "gate_proj", "gate_up_proj")
                         : StringRef()});
    if (!fused)
      return forms;
    for (StringRef alternatives : names.expert)
      derived.push_back(putExpertLast(alternatives));
    forms.push_back({derived.end()[-3], derived.end()[-2], derived.end()[-1]});
    // Parameters of all experts, merged or split, and modules of all experts.
    for (bool isParameter : {true, false}) {
      auto keep = [&](StringRef alternatives) {
        return keepNames(alternatives, isParameter);
      };
      StringRef both = keep(names.fused[0]), down = keep(names.fused[1]);
      forms.push_back({derive(both, "gate_up_proj", "gate_proj"),
                       derive(both, "gate_up_proj", "up_proj"), down, both,
                       isParameter, names.fusedTransposed});
      if (!names.fusedHalves[0].empty())
        forms.push_back({keep(names.fusedHalves[0]), keep(names.fusedHalves[1]),
                         "", "", isParameter});
    }
    forms.push_back({kTogether[0], kTogether[1], kTogether[2]});
    ExpertForm stacked = {names.stacked[0], names.stacked[1], names.stacked[2]};
    stacked.isParameter = stacked.flattened = true;
    forms.push_back(stacked);
    return forms;
  }

  /// The alternatives with another ending; empty for those without `from`.
  StringRef derive(StringRef alternatives, StringRef from, StringRef to) {
    std::string result;
    for (StringRef name : splitNames(alternatives))
      if (name.consume_back(from))
        result += (result.empty() ? "" : "|") + (name + to).str();
    derived.push_back(std::move(result));
    return derived.back();
  }

  /// The alternatives that are parameters, or those that are modules, without
  /// their suffix ".weight".
  StringRef keepNames(StringRef alternatives, bool areParameters) {
    std::string result;
    for (StringRef name : splitNames(alternatives))
      if (name.consume_back(".weight") != areParameters)
        result += (result.empty() ? "" : "|") + name.str();
    derived.push_back(std::move(result));
    return derived.back();
  }

  void addExperts(StringRef name) {
    bool isBias = name.consume_back("_bias");
    bool isFirst = name == "experts.w13";
    if (projection == Projection::InputScale)
      return addInputScale(isFirst,
                           {names.expert[0], names.expert[1], names.expert[2]});
    const StoredModules *stored = isBias ? nullptr : spec.findStored(name);
    for (const ExpertForm &form : getExpertForms()) {
      if (stored)
        addStored(form, *stored, isFirst);
      else if (!form.flattened || !(quantization || isBias))
        addForm(form, isFirst, isBias);
    }
    if (spec.numAlwaysChosen > 0)
      addAlwaysChosen(names.fused[!isFirst], names.always[!isFirst]);
    // A spec by itself does not say what the model's configuration does.
    if ((names.haveInputFactor && !spec.inputFactor) ||
        (!names.adjugate[0].empty() && !spec.adjugate))
      return forms.clear();
    if (isFirst && spec.inputFactor)
      for (CheckpointForm &form : forms)
        for (CheckpointPart &part : form)
          part.factor = *spec.inputFactor;
    if (spec.adjugate)
      addAdjugate(*spec.adjugate, isFirst);
    if (names.partOfTwo)
      for (CheckpointForm &form : forms)
        numberPart(form);
    if (!spec.constantExperts.empty())
      addConstants(isFirst, isBias);
  }

  /// Keeps the forms with a tensor per expert, of experts that are not
  /// constant. A bias has the vectors of those that are.
  void addConstants(bool isFirst, bool isBias) {
    if (isBias) {
      forms.clear();
      for (StringRef module : splitNames(names.expert[2])) {
        constexpr StringLiteral number = "{e}";
        CheckpointPart part;
        part.name = (module.take_front(module.find(number) + number.size()) +
                     ".approx_value")
                        .str();
        part.numRows = numRows;
        part.use = isFirst ? PartUse::Unused : PartUse::Values;
        part.onlyExperts = spec.constantExperts;
        forms.push_back({std::move(part)});
      }
      return;
    }
    llvm::erase_if(forms, [](const CheckpointForm &form) {
      return !form.front().isPerExpert();
    });
    for (CheckpointForm &form : forms)
      for (CheckpointPart &part : form) {
        std::vector<int64_t> experts;
        for (int64_t expert = 0; expert < spec.numExperts; ++expert)
          if (part.isOf(expert) && !is_contained(spec.constantExperts, expert))
            experts.push_back(expert);
        part.onlyExperts = std::move(experts);
      }
  }

  /// Numbers the experts of one of two parts, and ignores those of the other.
  void numberPart(CheckpointForm &form) {
    if (!form.front().isPerExpert())
      return;
    CheckpointForm others = form;
    for (CheckpointPart &part : form)
      part.firstNumber = *names.partOfTwo * spec.numExperts;
    for (CheckpointPart &part : others) {
      part.firstNumber = (1 - *names.partOfTwo) * spec.numExperts;
      part.use = PartUse::Unused;
      part.isOptional = true;
    }
    llvm::append_range(form, others);
  }

  /// Keeps the forms with a tensor per expert and projection, and adds those of
  /// the narrow experts that groups of experts share: rows of w13 behind the
  /// gate and behind the up rows, columns of w2.
  void addAdjugate(const AdjugateSpec &adjugate, bool isFirst) {
    int64_t width = adjugate.width, own = spec.intermediateSize - width;
    llvm::erase_if(forms, [&](const CheckpointForm &form) {
      return form.size() != (isFirst ? 2 : 1) || !form.front().isPerExpert();
    });
    for (CheckpointForm &form : forms) {
      CheckpointForm shared;
      for (auto [i, part] : llvm::enumerate(form)) {
        CheckpointPart added = part;
        added.name = (names.adjugate[isFirst ? i : 2] + ".weight").str();
        added.expertsPerTensor = adjugate.numExperts;
        if (isFirst) {
          part.numRows = own;
          added.numRows = width;
          added.firstRow = part.firstRow + own;
        } else {
          part.numColumns = added.firstColumn = own;
          added.numColumns = width;
          added.factor = adjugate.factor;
        }
        shared.push_back(std::move(added));
      }
      llvm::append_range(form, shared);
    }
  }

  /// Keeps the forms with tensors of all experts, and adds those of the experts
  /// that every token has. They are plain if the weight is dequantized.
  void addAlwaysChosen(StringRef fused, StringRef always) {
    llvm::erase_if(forms, [&](const CheckpointForm &form) {
      return llvm::any_of(form, [&](const CheckpointPart &part) {
        return !StringRef(part.name).starts_with(fused) ||
               part.numRows != numRows;
      });
    });
    for (CheckpointForm &form : forms) {
      CheckpointForm added;
      if (form.front().matrix)
        added = {makePart(always)};
      else
        added = form;
      for (CheckpointPart &part : added) {
        part.firstExpert = spec.numExperts - spec.numAlwaysChosen;
        part.numExperts = spec.numAlwaysChosen;
        StringRef suffix = part.name;
        if (suffix.consume_front(fused))
          part.name = (always + suffix).str();
      }
      for (CheckpointPart &part : form)
        part.numExperts = spec.numExperts - spec.numAlwaysChosen;
      llvm::append_range(form, added);
    }
  }

  void addForm(const ExpertForm &form, bool isFirst, bool isBias) {
    size_t before = forms.size();
    for (ArrayRef<CheckpointPart> suffixes :
         getSuffixes(form.isParameter, isBias)) {
      if (!isFirst) {
        addWhole(form.down, suffixes);
        continue;
      }
      addHalves(form.gate, form.up, suffixes);
      if (spec.isGated())
        addWhole(form.both, suffixes);
    }
    for (CheckpointForm &added : llvm::drop_begin(forms, before))
      for (CheckpointPart &part : added) {
        part.flattened = form.flattened;
        if (form.flattened)
          part.transposed = !isFirst;
        else if ((form.isParameter || form.transposed) && !isBias &&
                 !part.packing &&
                 (!quantization ||
                  getElementBits(quantization->weight.storage) == 8)) {
          part.transposed = form.transposed;
          part.maybeTransposed = form.isParameter;
        }
      }
  }

  /// Adds forms of matrices in several schemes, which are dequantized.
  void addStored(const ExpertForm &form, const StoredModules &stored,
                 bool isFirst) {
    size_t perExpert = isFirst && spec.isGated() ? 2 : 1;
    int64_t rows = numRows / int64_t(perExpert);
    if (!form.isParameter) {
      SmallVector<StringRef> first = splitNames(!isFirst         ? form.down
                                                : perExpert == 2 ? form.gate
                                                                 : form.up);
      SmallVector<StringRef> second = splitNames(form.up);
      for (size_t i = 0; i < first.size(); ++i) {
        CheckpointForm parts;
        addStoredParts(first[i], stored, 0, perExpert, rows, parts);
        if (perExpert == 2 && i < second.size())
          addStoredParts(second[i], stored, 1, perExpert, rows, parts);
        forms.push_back(std::move(parts));
      }
      return;
    }
    // One tensor has one scheme. Experts that every token has are in others.
    size_t numTogether =
        stored.schemes.size() -
        perExpert * size_t(isRouted ? spec.numAlwaysChosen : 0);
    const std::optional<QuantizationSpec> &only = stored.schemes.front();
    bool isOne =
        llvm::all_of(ArrayRef(stored.schemes).take_front(numTogether),
                     [&](const auto &scheme) { return scheme == only; });
    if (!isOne || !only)
      return;
    auto numExperts = int64_t(numTogether / perExpert);
    for (StringRef name : splitNames(isFirst ? form.both : form.down))
      for (auto &matrix :
           makeStoredParameters(*only, numberName(name, spec),
                                {numExperts, numRows, numColumns}))
        forms.push_back(makeStoredParts(matrix, numRows));
  }

  /// The tensors of a stored matrix: its elements give the part, and the others
  /// are read with them.
  CheckpointForm
  makeStoredParts(const std::shared_ptr<const StoredMatrix> &matrix,
                  int64_t rows) const {
    CheckpointForm parts;
    for (const TensorInfo &tensor : matrix->tensors)
      for (const CheckpointPart &of : tensor.checkpointForms.front()) {
        bool isMain = parts.empty();
        CheckpointPart part;
        part.name = of.name;
        part.numRows = rows;
        part.isOptional = of.isOptional;
        part.use = isMain ? PartUse::Values : PartUse::Unused;
        part.maybeTransposed = isMain && of.maybeTransposed;
        if (isMain)
          part.matrix = matrix;
        if (llvm::none_of(parts, [&](const CheckpointPart &other) {
              return other.name == part.name;
            }))
          parts.push_back(std::move(part));
      }
    return parts;
  }

  /// Adds the parts of module `name` (matrix `index` of each expert), one for
  /// each scheme and the experts that have it.
  void addStoredParts(StringRef name, const StoredModules &stored, size_t index,
                      size_t perExpert, int64_t rows, CheckpointForm &parts) {
    std::vector<
        std::pair<std::optional<QuantizationSpec>, std::vector<int64_t>>>
        groups;
    for (size_t e = 0; e * perExpert + index < stored.schemes.size(); ++e) {
      const auto &scheme = stored.schemes[e * perExpert + index];
      auto *group = llvm::find_if(groups, [&](const auto &other) {
                      return other.first == scheme;
                    }).base();
      if (group == groups.data() + groups.size()) {
        groups.push_back({scheme, {}});
        group = &groups.back();
      }
      group->second.push_back(int64_t(e));
    }
    for (auto &[scheme, experts] : groups) {
      CheckpointForm added;
      if (!scheme) {
        added.push_back(makePart(name, makeSuffix(".weight").front()));
        added.front().numRows = rows;
      } else if (auto matrix = makeStoredMatrix(
                     *scheme, numberName(name, spec),
                     {isRouted ? spec.numExperts : 1, rows, numColumns})) {
        added = makeStoredParts(matrix, rows);
      }
      for (CheckpointPart &part : added) {
        part.onlyExperts = experts;
        if (index == 1)
          placeUp(part, rows);
        else if (perExpert == 2)
          placeGate(part, rows);
        parts.push_back(std::move(part));
      }
    }
  }

  void placeGate(CheckpointPart &part, int64_t half) const {
    if (spec.gateUpOrder == GateUpOrder::UpGate)
      part.firstRow = half;
    else if (spec.gateUpOrder == GateUpOrder::Interleaved)
      part.rowStride = 2;
  }
  void placeUp(CheckpointPart &part, int64_t half) const {
    if (spec.gateUpOrder == GateUpOrder::GateUp)
      part.firstRow = half;
    else if (spec.gateUpOrder == GateUpOrder::Interleaved)
      part.firstRow = 1, part.rowStride = 2;
  }

  void addShared(StringRef name) {
    if (name == "shared_experts.gate")
      return addWhole(names.sharedGate);
    if (name == "shared_experts.gate_bias")
      return addWhole(names.sharedGateBias);
    if (name.consume_back("_bias"))
      return name == "shared_experts.w13"
                 ? addSharedFirst(makeSuffix(".bias"))
                 : addWhole(names.shared[2], makeSuffix(".bias"));
    if (projection == Projection::InputScale)
      return addInputScale(name == "shared_experts.w13",
                           {names.shared[0], names.shared[1], names.shared[2]});
    bool isFirst = name == "shared_experts.w13";
    ExpertForm form = {names.shared[0], names.shared[1], names.shared[2]};
    if (const StoredModules *stored = spec.findStored(name))
      return addStored(form, *stored, isFirst);
    if (!isFirst)
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
  int64_t numRows = 0, numColumns = 0;
  std::vector<CheckpointForm> forms;
  /// Names made from those of the family.
  std::deque<std::string> derived;
};

/// Families whose names are accepted for a spec: those that store experts
/// separately.
constexpr StringLiteral kCommonTypes[] = {"qwen2_moe", "deepseek_v3",
                                          "ernie4_5_moe", "mixtral"};

} // namespace

std::vector<CheckpointForm> getCheckpointForms(const LayerSpec &spec,
                                               const TensorInfo &tensor) {
  std::vector<CheckpointForm> forms;
  auto haveSameName = [](const CheckpointPart &a, const CheckpointPart &b) {
    return a.name == b.name;
  };
  auto add = [&](const Family *family, bool fused) {
    if (!family)
      return;
    for (CheckpointForm &form :
         FormBuilder(spec, family->names, fused).getForms(tensor))
      // A family has no names for some quantized tensors.
      if (!form.empty() && llvm::none_of(forms, [&](const auto &other) {
            return llvm::equal(form, other, haveSameName);
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
