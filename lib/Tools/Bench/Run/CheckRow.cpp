//===- CheckRow.cpp - compares sample rows with the reference ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowRun.h"

#include "../TryStatus.h"
#include "moec/Reference/Compare.h"
#include "moec/Reference/Layer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;
using reference::Call;
using reference::Decision;
using reference::Matrix;

/// Bound on the elements of weights that the reference makes for one set.
static constexpr double kMaxElements = 1e9;
static constexpr int64_t kMinRows = 4, kMaxRows = 32;
/// A token is compared only if a change of this size in its logits does not
/// change its experts.
static constexpr double kLogitNoise = 1e-3;

static Call makeCall(Session &session, const LayerOnDevice &layer,
                     const Row &row, const RandomTensor &hidden,
                     const Routing *routing) {
  Call call;
  call.spec = layer.getSpec();
  call.tokens = row.tokens;
  call.threads = session.threads;
  for (const auto &[name, random] : layer.getWeights())
    call.tensors[name] = reference::makeSource(random);
  for (const auto &[name, table] : layer.getTables())
    call.tensors[name] = reference::makeSource(table.data(), moert::DType::I32);
  call.tensors["hidden_states"] = reference::makeSource(hidden);
  if (routing) {
    call.tensors["topk_ids"] =
        reference::makeSource(routing->ids.data(), moert::DType::I32);
    call.tensors["topk_weights"] =
        reference::makeSource(routing->weights.data(), moert::DType::F32);
  }
  return call;
}

/// The tokens to compare: the first, the last, and random ones.
static std::vector<int64_t>
chooseTokens(const Row &row, const BenchLayer &layer, uint64_t seed) {
  double perRow = layer.getExpertElements() * static_cast<double>(layer.topK);
  int64_t count = std::clamp(static_cast<int64_t>(kMaxElements / perRow),
                             kMinRows, kMaxRows);
  std::set<int64_t> tokens = {0, row.tokens - 1};
  RandomStream stream(seed, "compared rows");
  for (uint64_t i = 0;
       static_cast<int64_t>(tokens.size()) < std::min(count, row.tokens); ++i)
    tokens.insert(static_cast<int64_t>(stream.getBits(i) %
                                       static_cast<uint64_t>(row.tokens)));
  return {tokens.begin(), tokens.end()};
}

/// Routes the whole call; removes tokens from `tokens` whose experts are
/// decided by the last bits of their logits.
static Decision decide(const Call &call, std::vector<int64_t> &tokens) {
  if (call.spec.entry == Entry::Ids)
    return reference::decide(call, Matrix());
  Matrix some = reference::computeLogits(call, tokens);
  Matrix logits(call.tokens, some.getNumColumns());
  for (auto [i, token] : llvm::enumerate(tokens))
    std::copy_n(some.row(static_cast<int64_t>(i)), some.getNumColumns(),
                logits.row(token));
  Decision decision = reference::decide(call, logits);
  for (uint64_t trial = 0; trial < 3; ++trial) {
    RandomStream stream(trial, "logit noise");
    Matrix noisy = logits;
    for (int64_t token : tokens)
      for (int64_t j = 0; j < some.getNumColumns(); ++j)
        noisy.row(token)[j] += kLogitNoise * getFactor(1) *
                               stream.getSum(static_cast<uint64_t>(
                                   token * some.getNumColumns() + j));
    Decision other = reference::decide(call, noisy);
    llvm::erase_if(tokens, [&](int64_t token) {
      int64_t first = token * call.spec.topK;
      auto sorted = [&](const Decision &one) {
        std::vector<int64_t> ids(one.ids.begin() + first,
                                 one.ids.begin() + first + call.spec.topK);
        llvm::sort(ids);
        return ids;
      };
      return sorted(decision) != sorted(other);
    });
  }
  return decision;
}

std::vector<Routing> RowRun::chooseRoutings() const {
  std::vector<Routing> chosen;
  for (const Set &set : sets) {
    Call call = makeCall(session, layer, row, set.random, nullptr);
    Decision decision = reference::decide(call, reference::getLogits(call));
    chosen.push_back(
        makeRouting(layer.getLayer(), decision.ids, decision.weights));
  }
  return chosen;
}

Result<std::vector<uint8_t>>
RowRun::readRows(int64_t set, const std::vector<int64_t> &tokens) {
  auto bytes = static_cast<size_t>(2 * layer.getSpec().hiddenSize);
  std::vector<uint8_t> rows(tokens.size() * bytes);
  for (auto [i, token] : llvm::enumerate(tokens))
    MOEC_TRY(session.device.copyOut(
        rows.data() + i * bytes,
        static_cast<const uint8_t *>(sets[set].output->data()) +
            static_cast<size_t>(token) * bytes,
        bytes));
  return rows;
}

RowRun::Sample RowRun::makeSample(int64_t set) const {
  Call call = makeCall(session, layer, row, sets[set].random,
                       routings.empty() ? nullptr : &routings[set]);
  Sample sample;
  sample.tokens =
      chooseTokens(row, layer.getLayer(), static_cast<uint64_t>(set));
  Decision decision = decide(call, sample.tokens);
  if (!sample.tokens.empty())
    sample.expected = reference::evaluate(call, decision, sample.tokens);
  return sample;
}

Status RowRun::checkSet(int64_t set, RowCheck &check) {
  auto found = samples.find(set);
  if (found == samples.end())
    found = samples.emplace(set, makeSample(set)).first;
  Sample &sample = found->second;
  if (sample.tokens.empty())
    return Status::ok();
  MOEC_TRY_ASSIGN(sample.seen, readRows(set, sample.tokens));
  const LayerSpec &spec = layer.getSpec();
  Matrix actual(static_cast<int64_t>(sample.tokens.size()), spec.hiddenSize);
  auto source = reference::makeSource(
      sample.seen.data(), reference::getRuntimeType(layer.getSpec().dtype));
  for (int64_t i = 0; i < actual.getNumRows(); ++i)
    source->read(i * actual.getNumColumns(), actual.getNumColumns(),
                 actual.row(i));
  reference::Comparison comparison = reference::compare(
      sample.expected, actual, reference::getErrorBound(spec), 0, "output",
      sample.tokens, reference::getRowFactor(spec));
  check.error = std::max(check.error, comparison.error);
  check.worstRowError = std::max(check.worstRowError, comparison.worstRowError);
  check.rows += static_cast<int64_t>(sample.tokens.size());
  if (!comparison.failures.empty())
    return moert::internalError("wrong result: " +
                                llvm::join(comparison.failures, "; "));
  return Status::ok();
}

Result<RowCheck> RowRun::check() {
  RowCheck result;
  for (int64_t set : std::set<int64_t>{0, getNumSets() - 1})
    MOEC_TRY(checkSet(set, result));
  return result;
}

Status RowRun::checkAgain() {
  for (const auto &[set, sample] : samples) {
    std::vector<uint8_t> now;
    MOEC_TRY_ASSIGN(now, readRows(set, sample.tokens));
    if (now != sample.seen)
      return moert::internalError(
          "the timed replays gave different bits from the checked run");
  }
  return Status::ok();
}
