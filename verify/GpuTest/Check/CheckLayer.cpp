//===- CheckLayer.cpp - compares results with the reference -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckLayer.h"

#include "moec/Reference/Compare.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <mutex>
#include <numeric>
#include <set>

using namespace moec;
using namespace moec::gputest;
using reference::Matrix;

namespace {

/// The most tokens, as a share, whose choice may be decided by a near tie.
constexpr double kNearTieShare = 0.01;

Matrix toMatrix(const HostTensor &tensor, llvm::ArrayRef<int64_t> rows) {
  Matrix matrix(static_cast<int64_t>(rows.size()), tensor.shape.back());
  auto source = reference::makeSource(tensor.data(), tensor.dtype);
  for (int64_t i = 0; i < matrix.getNumRows(); ++i)
    source->read(rows[i] * matrix.getNumColumns(), matrix.getNumColumns(),
                 matrix.row(i));
  return matrix;
}

class Check {
public:
  Check(const LayerCase &layerCase, const Inputs &inputs,
        const LayerResult &result, int threads, Outcome &outcome)
      : layerCase(layerCase), spec(inputs.getSpec()), result(result),
        outcome(outcome), call(inputs.makeCall(threads)),
        numValid(call.getNumValid()), isPresent(call.getPresent()) {}

  Load run() {
    double operations = static_cast<double>(call.tokens) *
                        reference::countOperationsPerToken(spec);
    tokens =
        chooseTokens(call.tokens, operations <= kMaxOperations, layerCase.seed);
    outcome.note = llvm::formatv("{0} of {1} rows", tokens.size(), call.tokens);
    all.resize(call.tokens);
    std::iota(all.begin(), all.end(), 0);
    decide();
    checkSorting();
    checkOutput();
    return load;
  }

private:
  void note(const reference::Comparison &comparison) {
    for (const std::string &failure : comparison.failures)
      outcome.fail(failure);
  }

  /// The logits for routing: those of the run, after a check.
  Matrix getLogits() {
    if (spec.entry != Entry::Gate || !result.logits)
      return reference::getLogits(call);
    std::vector<int64_t> present;
    llvm::copy_if(tokens, std::back_inserter(present),
                  [&](int64_t token) { return isPresent[token]; });
    // Logits are f32, with an error relative to the size of their terms.
    note(reference::compare(
        reference::computeLogits(call, present),
        toMatrix(*result.logits, present), reference::getErrorBound(DType::F32),
        0, "router_logits", present, reference::kRowFactor, areInputsFinite));
    return toMatrix(*result.logits, all);
  }

  void decide() {
    if (spec.entry == Entry::Ids) {
      decision = reference::decide(call, Matrix());
      return;
    }
    if (!result.ids || !result.weights) {
      outcome.fail("the plan has no topk_ids and topk_weights; routing cannot "
                   "be checked");
      decision = reference::decide(call, reference::getLogits(call));
      return;
    }
    Matrix logits = getLogits();
    int64_t topK = spec.topK, slots = call.tokens * topK;
    decision.ids.resize(slots);
    decision.weights.resize(slots);
    auto *seen = reinterpret_cast<const int32_t *>(result.ids->data());
    std::mutex mutex;
    int64_t numNear = 0, numWrong = 0;
    std::string wrong;
    reference::forEachRoutedRow(
        call, logits, [&](int64_t token, const reference::RoutedRow &row) {
          int64_t first = token * topK;
          llvm::ArrayRef<int64_t> expected = row.getIds();
          std::vector<int64_t> ids = expected.vec();
          // The id in an invalid slot is not compared.
          for (int64_t j = 0; j < topK; ++j) {
            int64_t id = seen[first + j];
            if (isValid(token, expected[j]) || isValid(token, id))
              ids[j] = id;
          }
          if (llvm::ArrayRef<int64_t>(ids) != expected) {
            std::lock_guard<std::mutex> lock(mutex);
            ++numNear;
            if (!row.accepts(ids)) {
              if (numWrong++ == 0)
                wrong = describe(token, ids, row);
              ids = expected.vec();
            }
          }
          llvm::copy(ids, decision.ids.begin() + first);
          row.weigh(ids, {decision.weights.data() + first,
                          static_cast<size_t>(topK)});
          // As reference::decide() does.
          if (!isPresent[token])
            std::fill_n(decision.ids.begin() + first, topK, -1);
        });
    if (numWrong > 0)
      outcome.fail(llvm::formatv("{0}; {1} wrong rows", wrong, numWrong));
    if (numNear > 0 && static_cast<double>(numNear) >=
                           kNearTieShare * static_cast<double>(call.tokens))
      outcome.fail(llvm::formatv("{0} of {1} rows depend on a near tie; take "
                                 "other inputs",
                                 numNear, call.tokens));
    checkWeights();
  }

  std::string describe(int64_t token, llvm::ArrayRef<int64_t> ids,
                       const reference::RoutedRow &row) const {
    auto print = [](llvm::ArrayRef<int64_t> values) {
      return llvm::join(
          llvm::map_range(values,
                          [](int64_t value) { return std::to_string(value); }),
          ", ");
    };
    std::string text =
        llvm::formatv("topk_ids: row {0} is [{1}], expected [{2}]", token,
                      print(ids), print(row.getIds()));
    for (auto [got, expected] : llvm::zip(ids, row.getIds()))
      if (got != expected && got >= 0 && got < spec.getNumRouted())
        return text + llvm::formatv(" (keys of {0} and {1} are {2} ulps apart)",
                                    got, expected,
                                    row.getKeyDistance(got, expected))
                          .str();
    return text;
  }

  bool isValid(int64_t token, int64_t id) const {
    return isPresent[token] &&
           reference::isValidSlot(spec, numValid, token, id);
  }

  void checkWeights() {
    Matrix expected(call.tokens, spec.topK);
    Matrix actual = toMatrix(*result.weights, all);
    for (int64_t t = 0; t < call.tokens; ++t)
      for (int64_t j = 0; j < spec.topK; ++j) {
        bool counts = isValid(t, decision.ids[t * spec.topK + j]);
        expected.row(t)[j] = counts ? decision.weights[t * spec.topK + j] : 0;
        actual.row(t)[j] = counts ? actual.row(t)[j] : 0;
      }
    note(reference::compare(
        expected, actual, reference::getErrorBound(DType::F32), 0,
        "topk_weights", all, reference::kRowFactor, areInputsFinite));
  }

  void checkSorting() {
    reference::ExpertIndices indices(call);
    std::vector<int64_t> offsets(spec.getNumLocalExperts() + 1, 0);
    auto getExpert = [&](int64_t slot) -> int64_t {
      int64_t id = decision.ids[slot];
      int64_t token = slot / spec.topK;
      return isValid(token, id) ? indices.find(token, id) : -1;
    };
    auto slots = static_cast<int64_t>(decision.ids.size());
    for (int64_t slot = 0; slot < slots; ++slot)
      if (int64_t expert = getExpert(slot); expert >= 0)
        ++offsets[expert + 1];
    load.activeExperts =
        llvm::count_if(offsets, [](int64_t n) { return n > 0; });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    load.rows = offsets.back();
    if (result.offsets)
      expectEqual("expert_offsets", *result.offsets, offsets);
    std::vector<int64_t> next = offsets, position(slots);
    for (int64_t slot = 0; slot < slots; ++slot) {
      int64_t expert = getExpert(slot), id = decision.ids[slot];
      bool isZero = isValid(slot / spec.topK, id) && id >= spec.numExperts;
      position[slot] = expert >= 0 ? next[expert]++ : isZero ? -2 : -1;
    }
    if (result.position)
      expectEqual("position", *result.position, position);
    if (layerCase.sums > 0)
      checkSums(position);
  }

  /// Checks that the output is the sum of rows of `experts_out`, which include
  /// the routing weights. Layers of such cases have no other summands.
  void checkSums(llvm::ArrayRef<int64_t> position) {
    if (!result.expertsOut) {
      outcome.fail("the plan has no experts_out; sums cannot be checked");
      return;
    }
    Matrix actual = toMatrix(result.output, tokens);
    Matrix expected(actual.getNumRows(), actual.getNumColumns());
    std::vector<double> row(expected.getNumColumns());
    auto source = reference::makeSource(result.expertsOut->data(),
                                        result.expertsOut->dtype);
    auto width = static_cast<int64_t>(row.size());
    for (auto [i, token] : llvm::enumerate(tokens))
      for (int64_t from : position.slice(token * spec.topK, spec.topK)) {
        if (from < 0)
          continue;
        source->read(from * width, width, row.data());
        for (int64_t j = 0; j < width; ++j)
          expected.row(static_cast<int64_t>(i))[j] += row[j];
      }
    note(reference::compare(
        expected, actual, reference::getErrorBound(spec.dtype), layerCase.sums,
        "sums of experts_out", tokens, reference::kRowFactor, areInputsFinite));
  }

  void expectEqual(const char *name, const HostTensor &actual,
                   llvm::ArrayRef<int64_t> expected) {
    auto *seen = reinterpret_cast<const int32_t *>(actual.data());
    if (actual.dtype != moert::DType::I32 ||
        actual.getNumElements() != static_cast<int64_t>(expected.size())) {
      outcome.fail(llvm::formatv("{0}: has {1} elements, expected {2}", name,
                                 actual.getNumElements(), expected.size()));
      return;
    }
    for (size_t i = 0; i < expected.size(); ++i)
      if (seen[i] != expected[i]) {
        outcome.fail(llvm::formatv("{0}[{1}] is {2}, expected {3}", name, i,
                                   seen[i], expected[i]));
        return;
      }
  }

  void checkRelativeErrors(const reference::RelativeErrors &errors) {
    if (layerCase.largestRelative > 0 &&
        errors.largest > layerCase.largestRelative)
      outcome.fail(llvm::formatv(
          "an element of the output is off by {0:e2} of its size, above {1:e2}",
          errors.largest, layerCase.largestRelative));
    if (layerCase.rmsRelative > 0 && errors.rms > layerCase.rmsRelative)
      outcome.fail(llvm::formatv("elements of the output are off by {0:e2} of "
                                 "their size on average, above {1:e2}",
                                 errors.rms, layerCase.rmsRelative));
    outcome.figures["largest_relative"] = errors.largest;
    outcome.figures["rms_relative"] = errors.rms;
  }

  void checkOutput() {
    double bound = reference::getErrorBound(spec);
    reference::Matrix expected = reference::evaluate(call, decision, tokens);
    reference::Matrix actual = toMatrix(result.output, tokens);
    reference::Comparison comparison = reference::compare(
        expected, actual, bound, layerCase.absolute, "output", tokens,
        reference::getRowFactor(spec), areInputsFinite);
    note(comparison);
    checkRelativeErrors(reference::findRelativeErrors(expected, actual));
    outcome.figures["error"] = comparison.error;
    outcome.figures["bound"] = bound;
    outcome.figures["worst_row_error"] = comparison.worstRowError;
    outcome.figures["largest_difference"] = comparison.largest;
    outcome.figures["rows_compared"] = static_cast<double>(tokens.size());
    if (layerCase.absolute > 0)
      outcome.figures["absolute_bound"] = layerCase.absolute;
  }

  const LayerCase &layerCase;
  const LayerSpec &spec;
  const LayerResult &result;
  Outcome &outcome;
  /// Rules of hard inputs may add NaN or infinities.
  const bool areInputsFinite = layerCase.hard.empty();
  reference::Call call;
  int64_t numValid;
  std::vector<bool> isPresent;
  std::vector<int64_t> tokens, all;
  reference::Decision decision;
  Load load;
};

} // namespace

std::vector<int64_t> moec::gputest::chooseTokens(int64_t tokens, bool all,
                                                 uint64_t seed) {
  std::set<int64_t> chosen;
  if (all || tokens <= kRows) {
    for (int64_t t = 0; t < tokens; ++t)
      chosen.insert(chosen.end(), t);
  } else {
    // Tokens at the edges of tiles of 8 to 256 rows; with several experts the
    // rows of a token are anywhere in tiles.
    for (int64_t edge : {int64_t(0), int64_t(8), int64_t(64), int64_t(128),
                         int64_t(256), tokens / 256 * 256, tokens})
      for (int64_t t : {edge - 1, edge})
        if (t >= 0 && t < tokens)
          chosen.insert(t);
    Draw draw(seed, "compared rows");
    while (static_cast<int64_t>(chosen.size()) < kRows)
      chosen.insert(draw.below(tokens));
  }
  return {chosen.begin(), chosen.end()};
}

Load moec::gputest::checkLayer(const LayerCase &layerCase, const Inputs &inputs,
                               const LayerResult &result, int threads,
                               Outcome &outcome) {
  return Check(layerCase, inputs, result, threads, outcome).run();
}
