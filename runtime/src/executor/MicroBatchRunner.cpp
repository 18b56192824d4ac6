//===- MicroBatchRunner.cpp - runs two halves interleaved -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A group is a run of consecutive collectives of one half that all gather,
// or all sum: its dispatch, or its combine. The halves are enqueued group by
// group, and since their collectives are on different streams an event orders
// them, equally on all ranks.
//
// Launches ahead of a group begin when the other half's launches ahead of the
// previous group have ended: then that group can begin too, and its CTAs come
// first. A gemm that began sooner would hold all multiprocessors until its last
// tile, and the exchange would overlap with nothing.
//
//===----------------------------------------------------------------------===//

#include "MicroBatchRunner.h"
#include "../support/Check.h"

#include <algorithm>

namespace moert {

Result<std::unique_ptr<MicroBatchRunner>>
MicroBatchRunner::create(std::shared_ptr<const LoadedLayer> layer) {
  Device &device = layer->device;
  std::unique_ptr<MicroBatchRunner> made(new MicroBatchRunner(layer));
  for (size_t half = 0; half < 2; ++half) {
    Result<RunLane> lane = RunLane::create(layer);
    if (!lane)
      return lane.status();
    made->lanes.push_back(std::move(*lane));
  }
  for (std::unique_ptr<Event> *event :
       {&made->begun, &made->launched[0], &made->launched[1], &made->met,
        &made->ended}) {
    Result<std::unique_ptr<Event>> created = device.createEvent();
    if (!created)
      return created.status();
    *event = std::move(*created);
  }
  return made;
}

//===----------------------------------------------------------------------===//
// Rows and workspaces
//===----------------------------------------------------------------------===//

Result<std::array<std::vector<void *>, 2>>
MicroBatchRunner::splitRows(const Bindings &bindings, const RunRequest &whole,
                            const BatchHalves &halves) const {
  std::array<std::vector<void *>, 2> addresses = {whole.addresses,
                                                  whole.addresses};
  for (size_t i = 0; i < whole.addresses.size(); ++i) {
    const TensorDecl &decl = layer->plan.tensors[i];
    if (!isArgument(decl))
      continue;
    std::array<int64_t, 3> rows = {};
    size_t next = 0;
    for (int64_t tokens : {halves[0], halves[1], whole.tokens}) {
      Result<int64_t> counted = decl.shape[0].evaluate(tokens);
      if (!counted)
        return counted.status();
      rows[next++] = *counted;
    }
    if (rows[0] + rows[1] != rows[2])
      return invalidArgument(
          "run: '" + decl.name + "' has " + std::to_string(rows[2]) +
          " rows of a batch, and " + std::to_string(rows[0] + rows[1]) +
          " of its halves; run without micro-batches");
    addresses[1][i] =
        static_cast<char *>(whole.addresses[i]) +
        rows[0] * bindings[i].strides[0] * dtypeBits(decl.dtype) / 8;
  }
  return addresses;
}

Status
MicroBatchRunner::checkWorkspace(const RunRequest &whole,
                                 const std::array<int64_t, 2> &bytes) const {
  int64_t given = whole.workspace.bytes;
  if (given >= bytes[0] && given - bytes[0] >= bytes[1])
    return Status::ok();
  return invalidArgument(
      "run: the workspace has " + std::to_string(given) + " bytes, " +
      std::to_string(whole.tokens) + " tokens in two micro-batches need " +
      std::to_string(bytes[0]) + " and " + std::to_string(bytes[1]) +
      "; allocate what workspaceBytes() returns");
}

Result<int64_t> MicroBatchRunner::resolve(const Bindings &bindings,
                                          const RunRequest &whole) {
  BatchHalves halves = splitBatch(layer->plan, whole.tokens);
  auto addresses = splitRows(bindings, whole, halves);
  if (!addresses)
    return addresses.status();
  std::array<int64_t, 2> bytes = {};
  for (size_t half = 0; half < 2; ++half) {
    Result<int64_t> own = lanes[half].layOut(halves[half]);
    if (!own)
      return own.status();
    bytes[half] = *own;
  }
  MOERT_CHECK(checkWorkspace(whole, bytes));
  RunRequest request = whole;
  for (size_t half = 0; half < 2; ++half) {
    request.half = half;
    request.tokens = halves[half];
    request.addresses = std::move((*addresses)[half]);
    request.workspace.bytes = bytes[half];
    MOERT_CHECK(lanes[half].resolve(bindings, request, maps[half]));
    request.workspace.data =
        static_cast<char *>(request.workspace.data) + bytes[half];
    // Results of the second half follow those of the first.
    request.resultBegins = run(half).resultEnds;
  }
  return bytes[0] + bytes[1];
}

bool MicroBatchRunner::haveResultsMoved() const {
  return run(0).haveResultsMoved() || run(1).haveResultsMoved();
}

void MicroBatchRunner::forget() {
  for (RunLane &lane : lanes)
    lane.forget();
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

size_t MicroBatchRunner::findGroupEnd(size_t half, size_t begin) const {
  const std::vector<ResolvedStep> &steps = run(half).steps;
  size_t end = steps.size();
  std::optional<bool> gathers;
  for (size_t i = begin; i < steps.size(); ++i) {
    if (!run(half).isExchange(steps[i]))
      continue;
    bool isGather = steps[i].collective.kind == CollectiveKind::AllGather;
    if (gathers && *gathers != isGather)
      break;
    gathers = isGather;
    end = i + 1;
  }
  return end;
}

Status MicroBatchRunner::awaitLaunches(size_t half, Stream &stream,
                                       std::vector<const Stream *> &waiting) {
  if (!hasLaunched[1 - half] ||
      std::find(waiting.begin(), waiting.end(), &stream) != waiting.end())
    return Status::ok();
  waiting.push_back(&stream);
  return layer->device.wait(stream, *launched[1 - half]);
}

Status MicroBatchRunner::giveGroup(size_t half, size_t begin, size_t end,
                                   Stream &first, const GiveStep &give) {
  Device &device = layer->device;
  const RunStreams &streams = lanes[half].streams();
  bool isFirst = true;
  std::vector<const Stream *> waiting;
  for (size_t i = begin; i < end; ++i) {
    const ResolvedStep &step = run(half).steps[i];
    bool meets = run(half).isExchange(step);
    Stream &stream = streams.find(step.stream, first);
    // A dependent launch always follows another one of its stream.
    if (step.kind == Step::Kind::Launch && !step.dims.dependent && isFirst)
      MOERT_CHECK(awaitLaunches(half, stream, waiting));
    if (meets && isFirst) {
      MOERT_CHECK(device.record(stream, *launched[half]));
      hasLaunched[half] = true;
      if (hasMet)
        MOERT_CHECK(device.wait(stream, *met));
    }
    isFirst = isFirst && !meets;
    MOERT_CHECK(give(run(half), i, streams, first));
    if (!meets || i + 1 < end)
      continue;
    MOERT_CHECK(device.record(stream, *met));
    hasMet = true;
  }
  return Status::ok();
}

Status MicroBatchRunner::giveSteps(Stream &first, const GiveStep &give) {
  Device &device = layer->device;
  Stream &second = lanes[1].streams().first();
  MOERT_CHECK(device.record(first, *begun));
  MOERT_CHECK(device.wait(second, *begun));
  hasMet = false;
  hasLaunched = {};
  std::array<size_t, 2> next = {};
  auto isDone = [&](size_t half) {
    return next[half] == run(half).steps.size();
  };
  for (size_t half = 0; !isDone(0) || !isDone(1); half = 1 - half) {
    size_t end = findGroupEnd(half, next[half]);
    MOERT_CHECK(
        giveGroup(half, next[half], end, half == 0 ? first : second, give));
    next[half] = end;
  }
  MOERT_CHECK(device.record(second, *ended));
  return device.wait(first, *ended);
}

Status MicroBatchRunner::enqueue(Stream &first) {
  return giveSteps(first, [](const ResolvedRun &run, size_t step,
                             const RunStreams &streams, Stream &stream) {
    return run.enqueueStep(step, streams, stream);
  });
}

bool MicroBatchRunner::hasReplaced(Replaced made) const {
  return run(0).hasReplaced(made) || run(1).hasReplaced(made);
}

Status MicroBatchRunner::enqueueReplaced(Replaced made, Stream &stream) const {
  MOERT_CHECK(run(0).enqueueReplaced(made, stream));
  return run(1).enqueueReplaced(made, stream);
}

Status MicroBatchRunner::poison(Stream &first) const {
  MOERT_CHECK(run(0).poison(first));
  return run(1).poison(first);
}

} // namespace moert
