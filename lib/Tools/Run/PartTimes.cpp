//===- PartTimes.cpp - times of a layer and its exchange --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartTimes.h"

#include "Timing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>

using namespace moec;
using moert::CollectiveKind;
using moert::Result;
using moert::Status;

static constexpr int64_t kExchangesPerSample = 10;
static constexpr int64_t kWarmUpRuns = 5;

Status RecordingCommunicator::run(moert::Stream &stream,
                                  const moert::Collective &collective) {
  if (mode == Mode::Skip)
    return Status::ok();
  if (mode == Mode::Record)
    recorded.push_back(
        {collective,
         {collective.parts, collective.parts + collective.numParts}});
  return inner->run(stream, collective);
}

Status RecordingCommunicator::repeat(moert::Stream &stream,
                                     const Recorded &from) {
  moert::Collective collective = from.collective;
  collective.parts = from.parts.data();
  return inner->run(stream, collective);
}

Result<std::vector<PartTimes>> PartTimer::run() {
  for (int64_t count : options.timesAt) {
    tokens = count;
    if (Status status = timeParts(); !status)
      return status.withContext("with " + std::to_string(count) + " tokens");
  }
  return std::move(times);
}

Status PartTimer::runLayer() {
  int64_t parts = options.recorder ? options.recorder->mesh().tokenRanks() : 1;
  return executor.run(tokens * parts, &stream);
}

Status PartTimer::timeParts() {
  using Mode = RecordingCommunicator::Mode;
  auto setMode = [&](Mode mode) {
    if (options.recorder)
      options.recorder->setMode(mode);
  };
  // From here on no rank frees memory. On a GPU that ranks share, a free waits
  // until all kernels have ended, including those that wait for this rank.
  if (options.recorder)
    if (Status status =
            options.recorder->agree("what is timed", std::to_string(tokens));
        !status)
      return status;
  // Grows buffers and loads kernels before anything is captured.
  setMode(Mode::Record);
  Status status = warmUp([&] { return runLayer(); });
  setMode(Mode::Record);
  if (status)
    status = runLayer();
  if (status)
    status = executor.synchronize(stream);
  setMode(Mode::Pass);
  if (status)
    status = time("layer", 1, [&] { return runLayer(); });
  if (!status || !options.recorder)
    return status;
  setMode(Mode::Skip);
  status = time("compute", 1, [&] { return runLayer(); });
  setMode(Mode::Pass);
  return status ? timeExchange() : status;
}

void PartTimer::takeOff(double replaced) {
  for (double &seconds : times.back().seconds)
    seconds -= replaced;
}

Result<double> PartTimer::timeReplaced(moert::Replaced made,
                                       llvm::StringRef part) {
  if (!options.recorder->runsKernels() || !executor.hasReplaced(made))
    return 0.0;
  if (Status status = time(part, kExchangesPerSample,
                           [&] { return executor.runReplaced(made, stream); });
      !status)
    return status;
  const std::vector<double> &seconds = times.back().seconds;
  return seconds[seconds.size() / 2];
}

Status PartTimer::timeExchange() {
  Result<double> sums = timeReplaced(moert::Replaced::Sums, "sums");
  if (!sums)
    return sums.status();
  Result<double> quantization =
      timeReplaced(moert::Replaced::Quantized, "quantization");
  if (!quantization)
    return quantization.status();
  Status status = timeRecorded("exchange", {CollectiveKind::AllGather,
                                            CollectiveKind::ReduceScatter,
                                            CollectiveKind::AllReduce});
  if (!status)
    return status;
  takeOff(*sums + *quantization);
  status = timeRecorded("dispatch", CollectiveKind::AllGather);
  if (!status)
    return status;
  takeOff(*quantization);
  status = timeRecorded(
      "combine", {CollectiveKind::ReduceScatter, CollectiveKind::AllReduce});
  if (!status)
    return status;
  takeOff(*sums);
  if (options.recorder->getPeer()) {
    status = timeCopies("copy dispatch", CollectiveKind::AllGather);
    if (status)
      status = timeCopies("copy combine", {CollectiveKind::ReduceScatter,
                                           CollectiveKind::AllReduce});
    return status;
  }
  if (!options.recorder->getNccl())
    return status;
  status = timeBytes("gather bytes", CollectiveKind::AllGather);
  if (status)
    status = timeBlocks("blocks dispatch", CollectiveKind::AllGather);
  if (status)
    status = timeBlocks("blocks combine", CollectiveKind::ReduceScatter);
  return status;
}

Status PartTimer::timeRecorded(llvm::StringRef part,
                               llvm::ArrayRef<CollectiveKind> kinds) {
  RecordingCommunicator &recorder = *options.recorder;
  std::vector<const RecordingCommunicator::Recorded *> chosen;
  for (const RecordingCommunicator::Recorded &one : recorder.getRecorded())
    if (llvm::is_contained(kinds, one.collective.kind))
      chosen.push_back(&one);
  if (chosen.empty())
    return Status::ok();
  return time(part, kExchangesPerSample, [&] {
    for (const RecordingCommunicator::Recorded *one : chosen)
      if (Status status = recorder.repeat(stream, *one); !status)
        return status;
    return Status::ok();
  });
}

/// Bytes of one rank.
static int64_t countBytes(const RecordingCommunicator::Recorded &one) {
  int64_t bytes = 0;
  for (const moert::CollectivePart &part : one.parts)
    bytes += part.count * (moert::dtypeBits(part.dtype) / 8);
  return bytes;
}

int64_t PartTimer::countBytes(CollectiveKind kind) const {
  int64_t bytes = 0;
  for (const RecordingCommunicator::Recorded &one :
       options.recorder->getRecorded())
    if (one.collective.kind == kind &&
        one.collective.axis == moert::MeshAxis::Data)
      bytes += ::countBytes(one);
  return bytes;
}

Status PartTimer::timeBytes(llvm::StringRef part, CollectiveKind kind) {
  moert::CollectivePart bytes;
  bytes.dtype = moert::DType::U8;
  bytes.count = countBytes(kind);
  if (bytes.count == 0)
    return Status::ok();
  int64_t ranks = options.recorder->mesh().dp;
  auto send = device.allocate(bytes.count, moert::kWorkspaceAlignment);
  if (!send)
    return send.status();
  auto receive =
      device.allocate(bytes.count * ranks, moert::kWorkspaceAlignment);
  if (!receive)
    return receive.status();
  bytes.send = (*send)->data();
  bytes.receive = (*receive)->data();
  moert::Collective collective;
  collective.kind = kind;
  collective.parts = &bytes;
  collective.numParts = 1;
  collective.where = part.str();
  return time(part, kExchangesPerSample,
              [&] { return options.recorder->run(stream, collective); });
}

Status PartTimer::timeBlocks(llvm::StringRef part, CollectiveKind kind) {
  int64_t rows = std::llround(double(tokens) * options.rankShare);
  int64_t bytes = countBytes(kind) / std::max<int64_t>(tokens, 1) * rows;
  if (bytes == 0)
    return Status::ok();
  int64_t ranks = options.recorder->mesh().dp;
  auto send = device.allocate(bytes * ranks, moert::kWorkspaceAlignment);
  if (!send)
    return send.status();
  auto receive = device.allocate(bytes * ranks, moert::kWorkspaceAlignment);
  if (!receive)
    return receive.status();
  return time(part, kExchangesPerSample, [&] {
    return options.recorder->getNccl()->allToAll(
        stream, moert::MeshAxis::Data, (*send)->data(), (*receive)->data(),
        bytes, part.str());
  });
}

Status PartTimer::timeCopies(llvm::StringRef part,
                             llvm::ArrayRef<CollectiveKind> kinds) {
  struct Copied {
    moert::MeshAxis axis;
    int64_t pitch, bytes;
  };
  std::vector<Copied> all;
  int64_t most = 0;
  for (const RecordingCommunicator::Recorded &one :
       options.recorder->getRecorded()) {
    const moert::Collective &collective = one.collective;
    // Each chunk of columns is recorded with the parts of the whole, which are
    // copied only once.
    int64_t bytes = ::countBytes(one);
    if (!llvm::is_contained(kinds, collective.kind) || bytes == 0 ||
        collective.firstColumn.value_or(0) > 0)
      continue;
    bool hasBlocks = collective.kind == CollectiveKind::ReduceScatter;
    all.push_back({collective.axis, hasBlocks ? bytes : 0, bytes});
    int64_t ranks = options.recorder->mesh().size(collective.axis);
    most = std::max(most, hasBlocks ? ranks * bytes : bytes);
  }
  if (all.empty())
    return Status::ok();
  // Gathers into results use no heap memory.
  for (const Copied &copied : all)
    if (Status reserved = options.recorder->getPeer()->reserve(
            copied.axis,
            options.recorder->mesh().size(copied.axis) * copied.bytes,
            /*resultBytes=*/0);
        !reserved)
      return reserved;
  auto send = device.allocate(size_t(most), moert::kWorkspaceAlignment);
  if (!send)
    return send.status();
  if (Status status = device.fill(stream, (*send)->data(), 0x5a, size_t(most));
      !status)
    return status;
  return time(part, kExchangesPerSample, [&] {
    for (const Copied &copied : all)
      if (Status status = options.recorder->getPeer()->copyBlocks(
              stream, copied.axis, (*send)->data(), copied.pitch, copied.bytes);
          !status)
        return status;
    return Status::ok();
  });
}

Status PartTimer::warmUp(Run once) {
  for (int64_t i = 0; i < kWarmUpRuns; ++i)
    if (Status status = once(); !status)
      return status;
  return executor.synchronize(stream);
}

/// Times `perSample` calls per sample; records the time of one.
Status PartTimer::time(llvm::StringRef part, int64_t perSample, Run once) {
  // Lets all ranks begin together.
  if (options.recorder)
    if (Status status = options.recorder->agree("what is timed", part.str());
        !status)
      return status;
  auto give = [&] {
    for (int64_t i = 0; i < perSample; ++i)
      if (Status status = once(); !status)
        return status;
    return Status::ok();
  };
  std::unique_ptr<moert::Graph> graph;
  if (options.graph) {
    if (Status status = give(); !status)
      return status;
    if (Status status = executor.synchronize(stream); !status)
      return status;
    auto captured = moert::captureGraph(device, stream, give);
    if (!captured)
      return captured.status();
    graph = std::move(*captured);
  }
  auto launch = [&] {
    return graph ? device.launchGraph(stream, *graph) : give();
  };
  if (Status status = warmUp(launch); !status)
    return status;
  bool hasClock = options.isOnGpu() && device.takesMachineCode();
  Result<std::vector<double>> seconds = (hasClock ? timeOnGpu : timeOnHost)(
      device, executor, stream, options.repeat, launch);
  if (!seconds)
    return seconds.status();
  for (double &value : *seconds)
    value /= double(perSample);
  times.push_back({tokens, part.str(), std::move(*seconds)});
  return Status::ok();
}

void moec::keepSlowest(std::vector<PartTimes> &slowest,
                       llvm::ArrayRef<PartTimes> others) {
  for (auto [own, other] : llvm::zip_equal(slowest, others))
    for (auto [value, otherValue] : llvm::zip_equal(own.seconds, other.seconds))
      value = std::max(value, otherValue);
}

void moec::printPartTimes(llvm::ArrayRef<PartTimes> times,
                          llvm::raw_ostream &os) {
  os << "tokens  part             timed   median us      p99 us\n";
  for (const PartTimes &part : times) {
    size_t count = part.seconds.size();
    os << llvm::formatv(
        "{0,6}  {1,-15}  {2,5}  {3,10:f2}  {4,10:f2}\n", part.tokens, part.part,
        count, part.seconds[count / 2] * 1e6,
        part.seconds[std::min(count - 1, count * 99 / 100)] * 1e6);
  }
}
