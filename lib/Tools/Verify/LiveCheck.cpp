//===- LiveCheck.cpp - compares runs with the reference -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LiveCheck.h"

#include "../../../runtime/src/support/FloatState.h"
#include "WriteFinding.h"
#include "moec/Import/Import.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"

#include <atomic>
#include <set>

using namespace moec;
using moert::Result;
using moert::Status;

/// Folders with files that a layer writes; later findings are told alone.
static constexpr int64_t kMaxFolders = 4;
/// Threads of a comparison beside a GPU, whose host has other work.
static constexpr int kThreads = 2;

static Result<LayerSpec> findSpec(const moert_layer &layer) {
  if (layer.description)
    return *static_cast<const LayerSpec *>(layer.description.get());
  if (layer.spec.empty())
    return moert::unavailable(
        "MOEC_VERIFY: the layer was compiled from IR, which the reference "
        "cannot evaluate; compile it from a JSON description");
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  mlir::FailureOr<LayerSpec> spec = importJson(
      SourceText("spec.json", layer.spec), /*overrides=*/{}, diagnostics);
  if (failed(spec))
    return moert::internalError(llvm::StringRef(messages).rtrim().str());
  return *spec;
}

/// The reason why no rows of the layer can be compared alone; empty if they
/// can.
static std::string whyIncomparable(const LayerSpec &spec,
                                   const moert::Plan &plan) {
  if (plan.mesh.numRanks() > 1)
    return "the layer runs on several ranks, each of which has a part of the "
           "weights";
  for (llvm::StringRef weight : spec.getExpertWeights())
    if (const auto &quantization = spec.getQuantization(weight))
      if (const auto &activation = quantization->activation)
        if (activation->granularity == Granularity::Tensor &&
            !activation->isStatic)
          return "activations of '" + weight.str() +
                 "' have one scale that depends on all rows";
  for (const moert::TensorDecl &tensor : plan.tensors)
    if (tensor.inPlaceOf >= 0)
      return "preparing overwrites the weight '" +
             plan.tensors[static_cast<size_t>(tensor.inPlaceOf)].name + "'";
  return {};
}

Result<std::unique_ptr<LiveCheck>> LiveCheck::create(moert_layer &layer,
                                                     LiveCheckOptions options) {
  Result<LayerSpec> spec = findSpec(layer);
  if (!spec)
    return spec.status();
  if (std::string why = whyIncomparable(*spec, layer.executor->plan());
      !why.empty())
    return moert::unavailable("MOEC_VERIFY: " + why +
                              "; compare this layer with moe-run --check");
  return std::unique_ptr<LiveCheck>(
      new LiveCheck(layer, std::move(*spec), std::move(options)));
}

std::unique_ptr<moert::RunWatch> LiveCheck::clone(moert_layer &clone) const {
  return std::unique_ptr<LiveCheck>(new LiveCheck(clone, spec, options));
}

Status LiveCheck::beforeRun(moert::Stream *stream) {
  isCaptured = false;
  if (isOfHost() || !stream)
    return Status::ok();
  Result<bool> captured = layer.device.isCapturing(*stream);
  // A device without graphs captures nothing.
  isCaptured = captured && *captured;
  if (!isCaptured || options.skipsCaptured)
    return Status::ok();
  return moert::invalidArgument(
      "MOEC_VERIFY: the run is captured into a graph, whose replays are not "
      "compared; unset MOEC_VERIFY, or run without graphs");
}

void LiveCheck::afterRun(int64_t tokens, moert::Stream *stream) {
  if (isCaptured || ++numRuns % options.every != 0 || tokens == 0)
    return;
  moert::FloatState state;
  if (Status status = sample(tokens, stream); !status)
    tellUncompared(numRuns, status);
}

/// Distinct rows, ascending.
std::vector<int64_t> LiveCheck::drawRows(int64_t tokens) const {
  RandomStream random(options.seed, "verified rows " + std::to_string(numRuns));
  std::set<int64_t> rows;
  auto count = static_cast<size_t>(std::min(options.rows, tokens));
  for (uint64_t i = 0; rows.size() < count; ++i)
    rows.insert(static_cast<int64_t>(random.getBits(i) %
                                     static_cast<uint64_t>(tokens)));
  return {rows.begin(), rows.end()};
}

Status LiveCheck::sample(int64_t tokens, moert::Stream *stream) {
  if (isComparing || !share.mayBegin(WorkShare::Clock::now()))
    return Status::ok();
  settle();
  Result<std::unique_ptr<RunSample>> listed =
      RunSample::create(*layer.executor, tokens, drawRows(tokens));
  if (!listed)
    return listed.status();
  std::shared_ptr<RunSample> sample = std::move(*listed);
  sample->get().number = numRuns;
  Result<BoundWeights> weights = findWeights(*layer.executor, layer.device);
  if (!weights)
    return weights.status();
  // A kernel of the CPU uses all cores, so the comparison may, too.
  if (isOfHost()) {
    if (Status status = sample->copyOut(layer.device); !status)
      return status;
    compare(sample->get(), *weights, layer.device.numThreads());
    return Status::ok();
  }
  moert::Stream &runs = stream ? *stream : layer.executor->ownStream();
  if (Status status = staging.enqueue(*sample, runs); !status)
    return status;
  auto work = [this, sample, weights = std::move(*weights)] {
    if (Status status = staging.fetch(*sample); status)
      compare(sample->get(), weights, kThreads);
    else
      tellUncompared(sample->get().number, status);
    share.end(WorkShare::Clock::now());
    isComparing = false;
  };
  share.begin(WorkShare::Clock::now());
  isComparing = true;
  thread = std::make_unique<moert::Thread>();
  if (thread->start(work))
    return Status::ok();
  thread.reset();
  work();
  return Status::ok();
}

void LiveCheck::compare(const SampledRun &run, const BoundWeights &weights,
                        int threads) {
  Result<std::vector<CheckedRow>> rows = checkRows(spec, run, weights, threads);
  std::string where =
      llvm::formatv("MOEC_VERIFY: layer '{0}', run {1} of {2} tokens",
                    spec.name, run.number, run.tokens);
  if (!rows)
    return tell(rows.status().withContext(where));
  auto wrong = llvm::find_if(
      *rows, [](const CheckedRow &row) { return !row.failures.empty(); });
  if (wrong == rows->end())
    return;
  std::string text = llvm::formatv("{0}: row {1} is wrong: {2}", where,
                                   wrong->row, wrong->failures.front());
  if (numFindings++ < kMaxFolders) {
    // Layers of a model have one name.
    static std::atomic<int> numFolders{0};
    std::string folder = llvm::formatv(
        "{0}/{1}-{2}-run{3}-{4}", options.folder, spec.name,
        llvm::sys::Process::getProcessId(), run.number, numFolders++);
    Status status = writeFinding(folder, spec, run, *wrong, weights,
                                 layer.device.name(), options.seed);
    text += status
                ? "; " + folder + " reproduces it (docs/howto/debug.md)"
                : "; what reproduces it was not written: " + status.message();
  }
  tell(moert::internalError(text));
}

/// Logs at once, since no caller may ever wait, and keeps the first for
/// report().
void LiveCheck::tell(const Status &status) {
  llvm::errs() << "moec: error: " << status.message() << "\n";
  if (found)
    found = status;
}

void LiveCheck::tellUncompared(int64_t run, const Status &status) {
  tell(status.withContext("MOEC_VERIFY: run " + std::to_string(run) +
                          " was not compared"));
}

void LiveCheck::settle() { thread.reset(); }

Status LiveCheck::report() {
  settle();
  return std::exchange(found, Status::ok());
}

Status LiveCheck::checkKept() const {
  return moert::invalidArgument(
      "MOEC_VERIFY compares runs with the weights that are bound, which "
      "therefore cannot be released or replaced by a prepared file; unset "
      "MOEC_VERIFY, or keep the weights");
}
