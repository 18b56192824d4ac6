//===- TimeRow.cpp - times a row and the yardstick --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowTable.h"

#include "../TryStatus.h"
#include "moec/Support/Process.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

static constexpr double kObservationSeconds = 0.15;
/// Duration of steady replays for rows that may be limited by power, and of
/// shorter ones that only read the clocks.
static constexpr double kSustainedSeconds = 1, kClocksSeconds = 0.3;
/// A row is taken as limited by operations if these need at least this share of
/// the time of its bytes.
static constexpr double kHeavyShare = 0.25;

void RowTable::startYardstick() {
  // Tuning only compares times with each other.
  if (!session.hasClock || options.yardstick == "none" || !options.tune.empty())
    return;
  int ordinal = 0;
  llvm::StringRef(options.device).split(':').second.getAsInteger(10, ordinal);
  auto warn = [](const Status &status) {
    llvm::errs() << "moe-bench: warning: " << status.message()
                 << "; ceilings are those of the recorded run, and there is no "
                    "yardstick\n";
  };
  Result<std::unique_ptr<Yardstick>> started = Yardstick::start(
      options.yardstick, options.getDataFile("yardstick.py"), ordinal);
  if (!started)
    return warn(started.status());
  Result<llvm::json::Object> rates =
      (*started)->ask(llvm::json::Object{{"do", "ceilings"}});
  if (!rates)
    return warn(rates.status());
  Ceilings measured;
  measured.bandwidth = rates->getNumber("bandwidth").value_or(0);
  measured.bf16 = rates->getNumber("bf16").value_or(0);
  // A device without fp8 has no fp8 rows, so the rate is not used.
  measured.fp8 = rates->getNumber("fp8").value_or(measured.bf16);
  measured.source = "measured";
  if (!measured.isComplete())
    return warn(moert::unavailable("the yardstick measured no ceilings"));
  ceilings = measured;
  yardstick = std::move(*started);
  record.setNote("yardstick", llvm::json::Object(yardstick->getGreeting()));
}

void RowTable::prepareYardstick(const BenchLayer &layer) {
  canMeasureLayer = false;
  if (!yardstick || !makesTable())
    return;
  Result<llvm::json::Object> answer = yardstick->ask(
      llvm::json::Object{{"do", "layer"},
                         {"num_experts", layer.numExperts},
                         {"local_experts", layer.localExperts},
                         {"top_k", layer.topK},
                         {"hidden", layer.hiddenSize},
                         {"intermediate", layer.intermediateSize},
                         {"fp8", layer.format->isFp8}});
  canMeasureLayer = static_cast<bool>(answer);
  if (!answer)
    llvm::errs() << "moe-bench: warning: " << layer.name << ": "
                 << answer.status().message() << "\n";
}

/// Whether operations limit the row, or nearly so.
static bool isHeavy(const Work &work, const BenchLayer &layer,
                    const Ceilings &ceilings) {
  return work.operations / ceilings.getRate(layer) >=
         kHeavyShare * work.bytes / ceilings.bandwidth;
}

void RowTable::prepareYardstick(const BenchLayer &layer, const Row &row,
                                const Work &work, llvm::json::Object &result) {
  canMeasureRow = canMeasureDense = false;
  if (!canMeasureLayer)
    return;
  Result<llvm::json::Object> answer = yardstick->ask(
      llvm::json::Object{{"do", "row"},
                         {"tokens", row.tokens},
                         {"exponent", row.exponent},
                         {"one", row.toOne},
                         {"sets", result.getInteger("sets").value_or(1)}});
  canMeasureRow = static_cast<bool>(answer);
  if (!answer)
    result["torch_error"] = answer.status().message();
  if (!isHeavy(work, layer, ceilings))
    return;
  answer =
      yardstick->ask(llvm::json::Object{{"do", "dense"}, {"rows", work.rows}});
  canMeasureDense = static_cast<bool>(answer);
  if (!answer)
    result["dense_error"] = answer.status().message();
}

/// Returns the median; records the observations and their spread.
static double summarize(std::vector<double> values, llvm::json::Object &result,
                        const std::string &prefix) {
  llvm::json::Array all(values);
  llvm::sort(values);
  double median = values[values.size() / 2];
  result[prefix + "us"] = median;
  result[prefix + "observations"] = std::move(all);
  result[prefix + "spread"] = (values.back() - values.front()) / median;
  return median;
}

std::optional<double> RowTable::observeYardstick(llvm::StringRef what,
                                                 double seconds,
                                                 bool &canMeasure,
                                                 llvm::StringRef error,
                                                 llvm::json::Object &result) {
  if (!canMeasure)
    return std::nullopt;
  Result<double> us = yardstick->askNumber(
      llvm::json::Object{{"do", what}, {"seconds", seconds}}, "us");
  canMeasure = static_cast<bool>(us);
  if (us)
    return *us;
  result[error] = us.status().message();
  return std::nullopt;
}

/// Records the times of the dense pair next to the row: its speed relative to
/// the peer's measurement, each by its own ceilings, and the speedup over the
/// peer if both were equal.
static void addDense(std::vector<double> observed, const Peer *peer,
                     double rate, double peerRate, llvm::json::Object &result) {
  double us = *result.getNumber("us");
  double dense = summarize(std::move(observed), result, "dense_row_");
  if (!peer || peer->denseUs <= 0)
    return;
  result["dense_drift"] = peer->denseUs * peerRate / (dense * rate);
  result["dense_speedup"] = dense / us * peer->bestUs / peer->denseUs;
}

Status RowTable::timeRow(LayerOnDevice &layer, RowRun &run, OtherRuns &others,
                         const Row &row, const Work &work,
                         llvm::json::Object &result) {
  /// A run, the prefix of its fields in the record, and its observations.
  struct Timed {
    RowRun *run;
    std::string prefix;
    std::vector<double> us;
  };
  std::vector<Timed> all = {{&run, "", {}}};
  for (auto &[other, prefix] :
       {std::pair<RowRun *, const char *>{others.routed.get(), "router_"},
        {others.chosen.get(), "router_ids_"},
        {others.beside.get(), "beside_"},
        {others.besideRouted.get(), "beside_router_"}})
    if (other)
      all.push_back({other, prefix, {}});
  for (Timed &timed : all)
    MOEC_TRY(timed.run->capture());
  std::vector<double> torchUs, denseUs;
  Observation observation;
  for (int i = 0; i < options.observations; ++i) {
    for (Timed &timed : all) {
      MOEC_TRY_ASSIGN(observation, timed.run->observe(kObservationSeconds));
      timed.us.push_back(observation.seconds * 1e6);
      if (timed.run == &run)
        result["replays"] = observation.replays;
    }
    if (std::optional<double> us =
            observeYardstick("observe", kObservationSeconds, canMeasureRow,
                             "torch_error", result))
      torchUs.push_back(*us);
    if (std::optional<double> us =
            observeYardstick("observe_dense", kObservationSeconds,
                             canMeasureDense, "dense_error", result))
      denseUs.push_back(*us);
  }
  for (Timed &timed : all)
    summarize(std::move(timed.us), result, timed.prefix);
  double median = *result.getNumber("us");
  double floor = work.getSeconds(layer.getLayer(), ceilings) * 1e6;
  result["fraction"] = floor / median;
  const Peer *peer = peers.find(row);
  if (!denseUs.empty())
    addDense(std::move(denseUs), peer, ceilings.getRate(layer.getLayer()),
             peers.ceilings.getRate(layer.getLayer()), result);
  if (!torchUs.empty()) {
    double torch = summarize(torchUs, result, "torch_");
    if (peer && peer->torchUs > 0)
      result["torch_drift"] = (floor / torch) / (peer->floorUs / peer->torchUs);
  }
  MOEC_TRY(sustain(layer, run, work, result));
  // All rows belong to one expert, so cuBLAS computes the same gemm.
  if (std::optional<double> dense = result.getNumber("dense_us");
      dense && row.toOne)
    result["dense_ratio"] =
        result.getNumber("sustained_us").value_or(median) / *dense;
  return Status::ok();
}

/// The driver's clocks and power; empty if it reports none.
static llvm::json::Object readClocks(llvm::StringRef device) {
  static const char *const kNames[] = {"sm_mhz", "memory_mhz", "watts",
                                       "celsius"};
  auto [name, ordinal] = device.split(':');
  llvm::Expected<ProcessResult> result = runProcess(
      "nvidia-smi",
      {"--id=" + (ordinal.empty() ? std::string("0") : ordinal.str()),
       "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu",
       "--format=csv,noheader,nounits"},
      /*timeoutSeconds=*/5);
  llvm::json::Object clocks;
  if (!result) {
    llvm::consumeError(result.takeError());
    return clocks;
  }
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(result->output).split(words, ',');
  for (auto [key, word] : llvm::zip(kNames, words)) {
    double value;
    if (!word.trim().getAsDouble(value))
      clocks[key] = value;
  }
  return clocks;
}

/// Times a long replay of the row and of the dense pair.
Status RowTable::sustain(LayerOnDevice &layer, RowRun &run, const Work &work,
                         llvm::json::Object &result) {
  const BenchLayer &described = layer.getLayer();
  double seconds = work.getSeconds(described, ceilings);
  bool isLong = isHeavy(work, described, ceilings);
  Observation observation;
  llvm::json::Object clocks;
  MOEC_TRY_ASSIGN(observation,
                  run.sustain(isLong ? kSustainedSeconds : kClocksSeconds,
                              [&] { clocks = readClocks(options.device); }));
  if (!clocks.empty())
    result["clocks"] = std::move(clocks);
  if (!isLong)
    return Status::ok();
  result["sustained_us"] = observation.seconds * 1e6;
  std::optional<double> dense =
      observeYardstick("sustain_dense", kSustainedSeconds, canMeasureDense,
                       "dense_error", result);
  if (!dense)
    return Status::ok();
  // The floor at the rate that the dense gemm sustains.
  seconds = std::max(*dense * 1e-6, work.bytes / ceilings.bandwidth);
  result["dense_us"] = *dense;
  result["dense_fraction"] = *dense * 1e-6 / observation.seconds;
  result["sustained_fraction"] = seconds / observation.seconds;
  return Status::ok();
}
