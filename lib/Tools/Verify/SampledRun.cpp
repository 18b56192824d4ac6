//===- SampledRun.cpp - rows of a run, and what they should be ------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SampledRun.h"

#include "moec/Reference/Compare.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace moec;
using moert::Result;
using moert::Status;
using reference::Matrix;

/// Copies of such pieces are as fast as the device can.
static constexpr size_t kStagedAlignment = 16;

const uint8_t *SampledTensor::row(size_t index) const {
  size_t rowBytes = static_cast<size_t>(numElements) *
                    static_cast<size_t>(moert::dtypeBits(dtype) / 8);
  return bytes.data() + index * rowBytes;
}

/// Tensors with one element per token are read as a whole: few bytes, of which
/// the reference reads those of all tokens.
void RunSample::addTensor(const moert::TensorDecl &tensor,
                          const moert::TensorView &view,
                          SampledTensor &result) {
  result.dtype = tensor.dtype;
  result.shape = view.shape;
  bool isPerToken = !tensor.shape.empty() && tensor.shape[0].dependsOnTokens();
  if (isPerToken)
    result.shape[0] = run.tokens;
  result.isInRows = isPerToken && view.shape.size() > 1;
  if (result.isInRows)
    result.shape.erase(result.shape.begin());
  for (int64_t size : result.shape)
    result.numElements *= size;
  auto elementBytes = static_cast<size_t>(moert::dtypeBits(tensor.dtype) / 8);
  size_t rowBytes = static_cast<size_t>(result.numElements) * elementBytes;
  if (!result.isInRows)
    return addPiece(result, 0, view.data, rowBytes);
  int64_t stride = view.strides.empty() ? result.numElements : view.strides[0];
  const auto *data = static_cast<const uint8_t *>(view.data);
  for (auto [index, row] : llvm::enumerate(run.rows))
    addPiece(result, index * rowBytes,
             data + static_cast<size_t>(row * stride) * elementBytes, rowBytes);
}

void RunSample::addPiece(SampledTensor &to, size_t offset, const void *from,
                         size_t bytes) {
  pieces.push_back(
      {&to, offset, static_cast<const uint8_t *>(from), bytes, stagedBytes});
  to.bytes.resize(offset + bytes);
  stagedBytes += llvm::alignTo(bytes, kStagedAlignment);
}

Result<std::unique_ptr<RunSample>>
RunSample::create(const moert::Executor &executor, int64_t tokens,
                  std::vector<int64_t> rows) {
  std::unique_ptr<RunSample> sample(new RunSample);
  sample->run.tokens = tokens;
  sample->run.rows = std::move(rows);
  for (const moert::TensorDecl &tensor : executor.plan().tensors) {
    bool isOutput = tensor.name == "output";
    if (tensor.role != moert::TensorRole::Input && !isOutput)
      continue;
    Result<moert::TensorView> view = executor.bound(tensor.name);
    if (!view)
      return view.status();
    sample->addTensor(tensor, *view,
                      isOutput ? sample->run.output
                               : sample->run.inputs[tensor.name]);
  }
  return sample;
}

Status RunSample::copyOut(moert::Device &device) {
  for (const Piece &piece : pieces)
    if (Status status = device.copyOut(piece.to->bytes.data() + piece.offset,
                                       piece.from, piece.bytes);
        !status)
      return status;
  return Status::ok();
}

Status RowStaging::enqueue(const RunSample &sample, moert::Stream &stream) {
  if (!waiting) {
    Result<std::unique_ptr<moert::Stream>> made = device.createStream();
    if (!made)
      return made.status();
    Result<std::unique_ptr<moert::Event>> event = device.createEvent();
    if (!event)
      return event.status();
    waiting = std::move(*made);
    copied = std::move(*event);
  }
  if (capacity < sample.stagedBytes) {
    Result<std::unique_ptr<moert::Buffer>> made =
        device.allocate(sample.stagedBytes, kStagedAlignment);
    if (!made)
      return made.status();
    memory = std::move(*made);
    capacity = sample.stagedBytes;
  }
  auto *staged = static_cast<uint8_t *>(memory->data());
  for (const RunSample::Piece &piece : sample.pieces)
    if (Status status =
            device.copyRows(stream, {staged + piece.staged, piece.from,
                                     piece.bytes, piece.bytes, piece.bytes, 1});
        !status)
      return status;
  return device.record(stream, *copied);
}

Status RowStaging::fetch(RunSample &sample) {
  if (Status status = device.wait(*waiting, *copied); !status)
    return status;
  if (Status status = device.synchronize(*waiting); !status)
    return status;
  std::vector<uint8_t> bytes(sample.stagedBytes);
  if (Status status =
          device.copyOut(bytes.data(), memory->data(), bytes.size());
      !status)
    return status;
  for (const RunSample::Piece &piece : sample.pieces)
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(piece.staged),
                piece.bytes, piece.to->bytes.data() + piece.offset);
  return Status::ok();
}

namespace {

/// Sampled rows at their places among all rows.
class Rows : public reference::Source {
public:
  Rows(const SampledTensor &tensor, const std::vector<int64_t> &rows)
      : tensor(tensor), rows(rows) {}

  void read(int64_t first, int64_t count, double *to) const override {
    int64_t row = first / tensor.numElements;
    size_t index = llvm::find(rows, row) - rows.begin();
    assert(index < rows.size() && "the reference reads sampled rows alone");
    reference::makeSource(tensor.row(index), tensor.dtype)
        ->read(first - row * tensor.numElements, count, to);
  }

private:
  const SampledTensor &tensor;
  const std::vector<int64_t> &rows;
};

/// A weight that others share.
class Shared : public reference::Source {
public:
  explicit Shared(std::shared_ptr<BoundWeight> weight)
      : weight(std::move(weight)) {}
  void read(int64_t first, int64_t count, double *to) const override {
    weight->read(first, count, to);
  }

private:
  std::shared_ptr<BoundWeight> weight;
};

/// Routes a row, and knows whether kernels may choose other experts.
class RowRouter {
public:
  RowRouter(const reference::Call &call, int64_t row)
      : call(call), router(call), logits(getLogits(row)),
        inputId(router.isHash()
                    ? static_cast<int64_t>(call.read("input_ids", row, 1)[0])
                    : 0) {}

  /// The result refers to this object.
  reference::RoutedRow route() const {
    return reference::RoutedRow(router, logits, inputId);
  }

  /// Whether a chosen and another expert have keys that differ by a few ulp, or
  /// logits that differ by the rounding of a kernel choose others.
  bool isNear() const {
    constexpr int64_t ulps = 8;
    constexpr int numTrials = 64;
    if (router.isHash())
      return false;
    reference::RoutedRow exact = route();
    auto routes = static_cast<int64_t>(logits.size());
    for (int64_t id : exact.getIds())
      for (int64_t other = 0; other < routes; ++other)
        if (!llvm::is_contained(exact.getIds(), other) && id >= 0 &&
            exact.getKeyDistance(id, other) <= ulps)
          return true;
    bool isGate = call.spec.entry == Entry::Gate;
    double largest = 1;
    for (double logit : logits)
      if (std::isfinite(logit))
        largest = std::max(largest, std::fabs(logit));
    // Sums of a gemm have errors of the size of their terms.
    double size = largest * (isGate ? 0x1p-14 : 0x1p-21);
    RandomStream random(/*seed=*/0, "near ties");
    uint64_t drawn = 0;
    for (int trial = 0; trial < numTrials; ++trial) {
      std::vector<double> moved = logits;
      for (double &logit : moved)
        logit += (random.getBits(drawn++) & 1 ? size : -size);
      reference::RoutedRow other(router, moved, inputId);
      if (!llvm::equal(other.getIds(), exact.getIds()))
        return true;
    }
    return false;
  }

private:
  std::vector<double> getLogits(int64_t row) const {
    int64_t routes = call.spec.getNumRouted();
    if (call.spec.entry == Entry::Logits)
      return call.read("router_logits", row * routes, routes);
    Matrix computed = reference::computeLogits(call, {row});
    return {computed.row(0), computed.row(0) + routes};
  }

  const reference::Call &call;
  reference::Router router;
  std::vector<double> logits;
  int64_t inputId;
};

/// Sets ids, weights and places of a row.
void decideRow(const reference::Call &call, CheckedRow &checked) {
  int64_t topK = call.spec.topK, first = checked.row * topK;
  checked.ids.resize(topK);
  checked.weights.resize(topK);
  if (call.spec.entry == Entry::Ids) {
    llvm::copy(call.read("topk_ids", first, topK), checked.ids.begin());
    checked.weights = call.read("topk_weights", first, topK);
  } else {
    RowRouter router(call, checked.row);
    reference::RoutedRow routed = router.route();
    llvm::copy(routed.getIds(), checked.ids.begin());
    routed.weigh(routed.getIds(), checked.weights);
  }
  if (!call.getPresent()[checked.row])
    llvm::fill(checked.ids, -1);
  reference::ExpertIndices indices(call);
  int64_t numValid = call.getNumValid();
  for (int64_t id : checked.ids) {
    bool hasWeights =
        reference::isValidSlot(call.spec, numValid, checked.row, id) &&
        id < call.spec.numExperts;
    checked.places.push_back(hasWeights ? indices.find(checked.row, id) : -1);
  }
}

} // namespace

Result<std::vector<CheckedRow>> moec::checkRows(const LayerSpec &spec,
                                                const SampledRun &run,
                                                const BoundWeights &weights,
                                                int threads) {
  reference::Call call;
  call.spec = spec;
  call.tokens = run.tokens;
  call.threads = threads;
  for (const auto &[name, tensor] : run.inputs)
    call.tensors[name] =
        tensor.isInRows
            ? std::make_unique<Rows>(tensor, run.rows)
            : reference::makeSource(tensor.bytes.data(), tensor.dtype);
  for (const auto &[name, weight] : weights)
    call.tensors[name] = std::make_unique<Shared>(weight);

  reference::Decision decision;
  decision.ids.assign(run.tokens * spec.topK, -1);
  decision.weights.assign(run.tokens * spec.topK, 0);
  std::vector<CheckedRow> checked(run.rows.size());
  for (auto [row, one] : llvm::zip(run.rows, checked)) {
    one.row = row;
    decideRow(call, one);
    llvm::copy(one.ids, decision.ids.begin() + row * spec.topK);
    llvm::copy(one.weights, decision.weights.begin() + row * spec.topK);
  }
  Matrix expected = reference::evaluate(call, decision, run.rows);
  for (const auto &[name, weight] : weights)
    if (Status status = weight->getStatus(); !status)
      return status.withContext("'" + name + "' cannot be read");

  Rows output(run.output, run.rows);
  for (auto [index, one] : llvm::enumerate(checked)) {
    one.expected = Matrix(1, spec.getOutputWidth());
    one.found = Matrix(1, spec.getOutputWidth());
    std::copy_n(expected.row(static_cast<int64_t>(index)),
                spec.getOutputWidth(), one.expected.row(0));
    output.read(one.row * spec.getOutputWidth(), spec.getOutputWidth(),
                one.found.row(0));
    one.bound = reference::getErrorBound(spec) * reference::getRowFactor(spec);
    // Inputs may hold NaN, which the output then has at the same places.
    reference::Comparison comparison = reference::compare(
        one.expected, one.found, one.bound, /*absolute=*/0, "output", {one.row},
        /*rowFactor=*/1, /*areInputsFinite=*/false);
    one.error = comparison.error;
    if (!comparison.failures.empty() &&
        (spec.entry == Entry::Ids || !RowRouter(call, one.row).isNear()))
      one.failures = std::move(comparison.failures);
  }
  return checked;
}
