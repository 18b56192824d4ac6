//===- WriteFinding.cpp - files that reproduce a wrong row ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WriteFinding.h"

#include "moec/Import/TensorSignature.h"
#include "moec/Package/SpecText.h"
#include "moec/Support/Version.h"
#include "moert/Safetensors.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"

#include <deque>
#include <limits>

using namespace moec;
using moert::Status;

namespace {

/// A layer with the experts of one row.
struct Reduced {
  LayerSpec spec;
  /// The experts' places among the layer's weights.
  std::vector<int64_t> places;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// Tensors of a file, with memory.
class Tensors {
public:
  void add(const std::string &name, moert::DType dtype,
           std::vector<int64_t> shape, std::vector<uint8_t> bytes) {
    memory.push_back(std::move(bytes));
    entries.push_back({name, dtype, std::move(shape), memory.back().data(),
                       memory.back().size()});
  }
  template <typename T>
  void addValues(const std::string &name, moert::DType dtype,
                 const std::vector<T> &values) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
    add(name, dtype, {1, static_cast<int64_t>(values.size())},
        {bytes, bytes + values.size() * sizeof(T)});
  }
  void addRow(const std::string &name, const reference::Matrix &matrix) {
    addValues(name, moert::DType::F32,
              std::vector<float>(matrix.row(0),
                                 matrix.row(0) + matrix.getNumColumns()));
  }
  Status write(const std::string &path) const {
    return moert::writeSafetensors(path, entries);
  }

private:
  std::vector<moert::SafetensorsTensor> entries;
  std::deque<std::vector<uint8_t>> memory;
};

} // namespace

static Reduced reduce(const LayerSpec &spec, const CheckedRow &checked) {
  Reduced reduced;
  for (auto [id, weight, place] :
       llvm::zip(checked.ids, checked.weights, checked.places)) {
    bool isZero = id >= spec.numExperts && id < spec.getNumRouted();
    if (place < 0 && !isZero)
      continue;
    auto known = llvm::find(reduced.places, place);
    if (!isZero && known == reduced.places.end())
      reduced.places.push_back(place);
    reduced.weights.push_back(static_cast<float>(weight));
    // Zero experts are numbered when all others are known.
    reduced.ids.push_back(static_cast<int32_t>(
        isZero ? -1 - (id - spec.numExperts)
               : llvm::find(reduced.places, place) - reduced.places.begin()));
  }
  if (reduced.places.empty())
    reduced.places.push_back(0);
  auto numExperts = static_cast<int64_t>(reduced.places.size());
  for (int32_t &id : reduced.ids)
    if (id < 0)
      id = static_cast<int32_t>(numExperts) - 1 - id;
  if (reduced.ids.empty()) {
    reduced.ids.push_back(-1);
    reduced.weights.push_back(0);
  }
  LayerSpec &own = reduced.spec = spec;
  own.entry = Entry::Ids;
  own.routing = RoutingSpec();
  own.routing.weightOnInput = spec.routing.weightOnInput;
  own.numExperts = numExperts;
  own.topK = static_cast<int64_t>(reduced.ids.size());
  own.maxTokens = 1;
  own.numValidTokens = own.paddingMask = own.recordLoad = false;
  own.recordIds.reset();
  own.replayIds.reset();
  own.batchInvariant = own.stridedWeights = false;
  own.placement.reset();
  own.parallel.reset();
  own.replicas.reset();
  return reduced;
}

/// Copies a weight, or its slices of the reduced layer's experts.
static Status addWeight(Tensors &tensors, const std::string &name,
                        const BoundWeight &weight,
                        const std::vector<int64_t> &places, bool isReduced) {
  const moert::TensorView &view = weight.getView();
  std::vector<int64_t> shape = view.shape;
  std::vector<int64_t> slices = {0};
  if (weight.isOfExperts()) {
    slices.resize(shape[0]);
    for (int64_t i = 0; i < shape[0]; ++i)
      slices[i] = i;
    if (isReduced)
      slices = places;
    shape[0] = static_cast<int64_t>(slices.size());
  }
  std::vector<uint8_t> bytes;
  for (int64_t slice : slices) {
    auto part = weight.getSlice(slice);
    if (!part)
      return part.status();
    bytes.insert(bytes.end(), (*part)->begin(), (*part)->end());
  }
  tensors.add(name, view.dtype, std::move(shape), std::move(bytes));
  return Status::ok();
}

static std::vector<uint8_t> copyRow(const SampledTensor &tensor, size_t index) {
  size_t size = static_cast<size_t>(tensor.numElements) *
                static_cast<size_t>(moert::dtypeBits(tensor.dtype) / 8);
  return {tensor.row(index), tensor.row(index) + size};
}

static Status writeText(const std::string &path, const std::string &text) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  os << text;
  os.close();
  if (!error)
    error = os.error();
  os.clear_error();
  return error ? moert::unavailable(path +
                                    ": cannot be written: " + error.message())
               : Status::ok();
}

static std::string describeFinding(const SampledRun &run,
                                   const CheckedRow &checked,
                                   const std::string &device, uint64_t seed) {
  llvm::json::Object finding{
      {"moec", getVersionAndCommit()},
      {"device", device},
      {"run", run.number},
      {"tokens", run.tokens},
      {"row", checked.row},
      {"sampled_rows", llvm::json::Array(run.rows)},
      {"seed", static_cast<int64_t>(seed)},
      {"relative_error", checked.error},
      {"bound", checked.bound},
      {"found", checked.failures.front()},
      {"ids", llvm::json::Array(checked.ids)},
      {"weights", llvm::json::Array(checked.weights)},
      {"replay", "moe-run spec.json --tokens=1 --inputs=inputs.safetensors "
                 "--check"}};
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(finding)));
  return text;
}

Status moec::writeFinding(const std::string &folder, const LayerSpec &spec,
                          const SampledRun &run, const CheckedRow &checked,
                          const BoundWeights &weights,
                          const std::string &device, uint64_t seed) {
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return moert::unavailable(folder + ": cannot be made: " + error.message());
  size_t index = llvm::find(run.rows, checked.row) - run.rows.begin();
  Tensors row;
  for (const auto &[name, tensor] : run.inputs) {
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.isInRows)
      shape.insert(shape.begin(), 1);
    row.add(name, tensor.dtype, shape,
            tensor.isInRows ? copyRow(tensor, index) : tensor.bytes);
  }
  row.addRow("expected", checked.expected);
  row.addRow("found", checked.found);

  Reduced reduced = reduce(spec, checked);
  Tensors inputs, outputs;
  const SampledTensor &hidden = run.inputs.at("hidden_states");
  inputs.add("hidden_states", hidden.dtype, {1, spec.hiddenSize},
             copyRow(hidden, index));
  inputs.addValues("topk_ids", moert::DType::I32, reduced.ids);
  inputs.addValues("topk_weights", moert::DType::F32, reduced.weights);
  for (const TensorInfo &info : getTensorSignature(reduced.spec)) {
    if (info.role != TensorRole::Weight)
      continue;
    const BoundWeight &weight = *weights.at(info.name);
    bool isReduced = !info.shape.empty() &&
                     info.shape[0] == reduced.spec.numExperts &&
                     weight.getView().shape[0] == spec.getNumLocalExperts();
    if (Status status =
            addWeight(inputs, info.name, weight, reduced.places, isReduced);
        !status)
      return status;
  }
  outputs.add("output", run.output.dtype, {1, spec.getOutputWidth()},
              copyRow(run.output, index));

  Status status = writeText(folder + "/finding.json",
                            describeFinding(run, checked, device, seed));
  auto continueWith = [&](const Status &next) {
    if (status)
      status = next;
  };
  continueWith(writeText(folder + "/layer.json", printLayerSpec(spec)));
  continueWith(writeText(folder + "/spec.json", printLayerSpec(reduced.spec)));
  continueWith(row.write(folder + "/row.safetensors"));
  continueWith(inputs.write(folder + "/inputs.safetensors"));
  continueWith(outputs.write(folder + "/outputs.safetensors"));
  return status;
}
