//===- Invariants.cpp - bitwise invariants of a layer -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Invariants.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>
#include <numeric>

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

void moec::gputest::unifyNaN(Bytes &bytes, DType dtype) {
  auto unify = [&](auto infinity, auto mask) {
    using Bits = decltype(infinity);
    for (size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
      Bits bits;
      std::memcpy(&bits, &bytes[i], sizeof(bits));
      if ((bits & mask) > infinity)
        std::memcpy(&bytes[i], &mask, sizeof(bits));
    }
  };
  if (dtype == DType::F32)
    unify(uint32_t(0x7F800000), uint32_t(0x7FFFFFFF));
  else
    unify(uint16_t(dtype == DType::BF16 ? 0x7F80 : 0x7C00), uint16_t(0x7FFF));
}

Invariants::Invariants(const SuiteContext &context, LayerRun &run,
                       Inputs &inputs, Bytes expected, Bytes records,
                       Outcome &outcome)
    : context(context), run(run), inputs(inputs), expected(std::move(expected)),
      records(std::move(records)), outcome(outcome),
      tokens(inputs.getNumTokens()), numValid(inputs.makeCall(1).getNumValid()),
      rowBytes(this->expected.size() /
               static_cast<size_t>(std::max<int64_t>(1, tokens))) {}

bool Invariants::read(Bytes &bytes) {
  Result<Bytes> result = run.readOutput();
  if (!outcome.expect(result.status()))
    return false;
  bytes = std::move(*result);
  unifyNaN(bytes, inputs.getSpec().dtype);
  return true;
}

bool Invariants::runOnce() { return outcome.expect(run.run()); }

void Invariants::compare(const std::string &what, const Bytes &wanted,
                         llvm::function_ref<int64_t(int64_t)> source) {
  Bytes bytes;
  if (!read(bytes))
    return;
  if (context.plant == Plant::Repeat && !bytes.empty())
    bytes[bytes.size() / 2] ^= 1;
  int64_t first = -1, count = 0;
  for (int64_t row = 0; row < tokens; ++row) {
    int64_t from = source(row);
    if (from < 0 || std::memcmp(bytes.data() + row * rowBytes,
                                wanted.data() + from * rowBytes, rowBytes) == 0)
      continue;
    if (count++ == 0)
      first = row;
  }
  if (count > 0)
    outcome.fail(llvm::formatv("{0}: row {1} has different bits ({2} rows)",
                               what, first, count));
}

void Invariants::compareRecords(const std::string &what) {
  Result<Bytes> bytes = run.readRecords();
  if (!outcome.expect(bytes.status()))
    return;
  if (context.plant == Plant::Repeat && !bytes->empty())
    (*bytes)[bytes->size() / 2] ^= 1;
  if (*bytes != records)
    outcome.fail(what + ": recorded results have different bits");
}

static int64_t identity(int64_t row) { return row; }

void Invariants::checkRepeats(int64_t count) {
  auto compareAll = [&](const std::string &what) {
    compare(what, expected, identity);
    compareRecords(what);
  };
  for (int64_t i = 0; i < count && outcome.hasPassed(); ++i)
    if (runOnce())
      compareAll(llvm::formatv("run {0}", i + 2));
  if (!context.isGpu || !outcome.expect(run.capture()))
    return;
  for (int64_t i = 0; i < std::max<int64_t>(count, 1) && outcome.hasPassed();
       ++i)
    if (outcome.expect(run.replay()))
      compareAll(llvm::formatv("replay {0} of the graph", i + 1));
}

bool Invariants::update(
    const std::function<void(HostTensor &, const HostTensor &)> &change) {
  for (const InputTensor &tensor : inputs.getTensors()) {
    if (!tensor.isPerToken)
      continue;
    HostTensor changed;
    changed.name = tensor.host.name;
    changed.dtype = tensor.host.dtype;
    changed.shape = tensor.host.shape;
    if (!outcome.expect(changed.allocate()))
      return false;
    std::memcpy(changed.data(), tensor.host.data(), changed.getNumBytes());
    change(changed, tensor.host);
    if (!outcome.expect(run.update(changed)))
      return false;
  }
  return true;
}

bool Invariants::restore() {
  for (const InputTensor &tensor : inputs.getTensors())
    if (!tensor.random && !outcome.expect(run.update(tensor.host)))
      return false;
  return true;
}

static int64_t getRowSize(const HostTensor &tensor) {
  return tensor.shape.size() > 1 ? tensor.shape.back() : 1;
}

void Invariants::checkIsolation() {
  if (numValid == 0)
    return;
  for (int64_t changed : {int64_t(0), numValid / 2, numValid - 1}) {
    auto change = [&](HostTensor &to, const HostTensor &from) {
      // Does not change the padding mask.
      if (from.dtype == moert::DType::I8)
        return;
      int64_t columns = getRowSize(from), first = changed * columns;
      int64_t routes = inputs.getSpec().getNumRouted();
      for (int64_t i = 0; i < columns; ++i) {
        double value = getElement(from, first + columns - 1 - i);
        bool isInteger = from.dtype == moert::DType::I32;
        setElement(to, first + i,
                   isInteger ? static_cast<double>(
                                   (static_cast<int64_t>(value) + 1) % routes)
                             : value * 0.75 + 0.0625);
      }
    };
    if (!update(change) || !runOnce())
      return;
    compare(llvm::formatv("with another row {0}", changed), expected,
            [&](int64_t row) { return row == changed ? -1 : row; });
  }
  (void)restore();
}

void Invariants::checkPermutation() {
  std::vector<int64_t> source(tokens);
  std::iota(source.begin(), source.end(), 0);
  Draw draw(inputs.getSeed(), "permutation");
  // Does not move padding.
  for (int64_t i = numValid - 1; i > 0; --i)
    std::swap(source[i], source[draw.below(i + 1)]);
  auto permute = [&](HostTensor &to, const HostTensor &from) {
    auto bytes =
        static_cast<int64_t>(from.getNumBytes()) / std::max<int64_t>(1, tokens);
    for (int64_t row = 0; row < tokens; ++row)
      std::memcpy(to.data() + row * bytes, from.data() + source[row] * bytes,
                  static_cast<size_t>(bytes));
  };
  if (!update(permute) || !runOnce())
    return;
  compare("with permuted tokens", expected,
          [&](int64_t row) { return source[row]; });
  (void)restore();
}

void Invariants::checkValidCounts() {
  InputTensor *valid = inputs.find("num_valid_tokens");
  if (!valid || !context.isGpu)
    return;
  auto set = [&](int64_t count) {
    setElement(valid->host, 0, static_cast<double>(count));
    return outcome.expect(run.update(valid->host));
  };
  for (int64_t count : {int64_t(0), int64_t(1), tokens / 3, tokens}) {
    Bytes eager;
    if (!set(std::min(count, tokens)) || !runOnce() || !read(eager) ||
        !outcome.expect(run.replay()))
      break;
    compare(llvm::formatv("replay of the graph with {0} valid tokens", count),
            eager, identity);
  }
  (void)set(numValid);
}

void Invariants::inspect(LayerResult &result, bool keepExpertsOut) {
  if (!outcome.expect(run.runInspected()))
    return;
  const char *what = "with a workspace slot for each buffer";
  compare(what, expected, identity);
  compareRecords(what);
  auto keep = [&](const char *name, std::optional<HostTensor> &to) {
    Result<std::optional<HostTensor>> tensor = run.inspect(name);
    if (outcome.expect(tensor.status()))
      to = std::move(*tensor);
  };
  if (inputs.getSpec().entry != Entry::Logits)
    keep("router_logits", result.logits);
  const LayerSpec &spec = inputs.getSpec();
  // Ids that a caller holds may have less than 32 bits.
  bool isNarrow = spec.recordIds.value_or(IdType::Int32) != IdType::Int32;
  keep(isNarrow || spec.replayIds ? "chosen_ids" : "topk_ids", result.ids);
  keep("topk_weights", result.weights);
  keep("expert_offsets", result.offsets);
  keep("position", result.position);
  if (keepExpertsOut)
    keep("experts_out", result.expertsOut);
}
