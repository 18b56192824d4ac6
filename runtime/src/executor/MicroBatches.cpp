//===- MicroBatches.cpp - a run as two halves of a batch --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A `turn` is a group of consecutive collectives of one half that all gather,
// or all sum: its dispatch, or its combine. The halves are enqueued turn by
// turn, and since their collectives are on different streams an event orders
// them, equally on all ranks.
//
// Launches ahead of a turn begin when the other half's launches ahead of the
// previous turn have ended: then that turn can begin too, and its CTAs come
// first. A gemm that began sooner would hold all multiprocessors until its last
// tile, and the exchange would overlap with nothing.
//
//===----------------------------------------------------------------------===//

#include "MicroBatches.h"
#include "../support/Check.h"

#include <algorithm>

namespace moert {

Result<std::unique_ptr<MicroBatches>>
MicroBatches::create(const Executor &whole) {
  std::unique_ptr<MicroBatches> made(new MicroBatches());
  for (size_t half = 0; half < 2; ++half) {
    Result<std::unique_ptr<Executor>> clone = whole.clone();
    if (!clone)
      return clone.status();
    (*clone)->microBatchesFrom = 0;
    (*clone)->half = half;
    made->halves[half] = std::move(*clone);
  }
  for (std::unique_ptr<Event> *event :
       {&made->begun, &made->launched[0], &made->launched[1], &made->met,
        &made->ended}) {
    Result<std::unique_ptr<Event>> created = whole.device.createEvent();
    if (!created)
      return created.status();
    *event = std::move(*created);
  }
  return made;
}

//===----------------------------------------------------------------------===//
// Rows and workspaces
//===----------------------------------------------------------------------===//

Status MicroBatches::bindRows(const Executor &whole, size_t tensor,
                              int64_t tokens, const BatchHalves &cut) {
  const TensorDecl &decl = whole.thePlan->tensors[tensor];
  const Executor::Binding &all = whole.bindings[tensor];
  Result<int64_t> rows = decl.shape[0].evaluate(tokens);
  if (!rows)
    return rows.status();
  int64_t begin = 0;
  for (size_t half = 0; half < 2; ++half) {
    Result<int64_t> own = decl.shape[0].evaluate(cut[half]);
    if (!own)
      return own.status();
    Executor::Binding part = all;
    part.shape[0] = *own;
    part.data = static_cast<char *>(all.data) +
                begin * all.strides[0] * dtypeBits(decl.dtype) / 8;
    begin += *own;
    Executor &executor = *halves[half];
    Executor::Binding &bound = executor.bindings[tensor];
    if (bound.bound && bound.shape == part.shape) {
      if (bound.data != part.data)
        executor.move(static_cast<int64_t>(tensor), part.data);
      continue;
    }
    executor.resolvedTokens = -1;
    bound = std::move(part);
  }
  if (begin != *rows)
    return invalidArgument("run: '" + decl.name + "' has " +
                           std::to_string(*rows) + " rows of a batch, and " +
                           std::to_string(begin) +
                           " of its halves; run without micro-batches");
  return Status::ok();
}

Status MicroBatches::bindRows(const Executor &whole, const BatchHalves &cut) {
  for (size_t i = 0; i < whole.bindings.size(); ++i)
    if (TensorRole role = whole.thePlan->tensors[i].role;
        role == TensorRole::Input || role == TensorRole::Output)
      MOERT_CHECK(bindRows(whole, i, cut[0] + cut[1], cut));
  return Status::ok();
}

Result<int64_t> MicroBatches::resolve(const Executor &whole, int64_t tokens,
                                      WorkspaceView workspace) {
  BatchHalves cut = cutBatch(*whole.thePlan, tokens);
  MOERT_CHECK(bindRows(whole, cut));
  std::array<int64_t, 2> bytes = {};
  for (size_t half = 0; half < 2; ++half) {
    Result<int64_t> own = halves[half]->layOut(cut[half]);
    if (!own)
      return own.status();
    bytes[half] = *own;
  }
  if (workspace.bytes < bytes[0] || workspace.bytes - bytes[0] < bytes[1])
    return invalidArgument(
        "run: the workspace has " + std::to_string(workspace.bytes) +
        " bytes, " + std::to_string(tokens) +
        " tokens in two micro-batches need " + std::to_string(bytes[0]) +
        " and " + std::to_string(bytes[1]) +
        "; allocate what workspaceBytes() answers");
  auto *data = static_cast<char *>(workspace.data);
  for (size_t half = 0; half < 2; ++half) {
    MOERT_CHECK(halves[half]->resolve(cut[half], {data, bytes[half]}));
    data += bytes[half];
    // Results of the second half follow those of the first.
    if (half == 0 && halves[1]->resultBegins != halves[0]->resultEnds) {
      halves[1]->resultBegins = halves[0]->resultEnds;
      halves[1]->resolvedTokens = -1;
    }
  }
  return bytes[0] + bytes[1];
}

bool MicroBatches::haveResultsMoved() const {
  return halves[0]->haveResultsMoved() || halves[1]->haveResultsMoved();
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

size_t MicroBatches::findTurnEnd(size_t half, size_t begin) const {
  const Executor &executor = *halves[half];
  size_t end = executor.resolved.size();
  std::optional<bool> gathers;
  for (size_t i = begin; i < executor.resolved.size(); ++i) {
    const Executor::ResolvedStep &step = executor.resolved[i];
    if (!executor.isExchanged(step))
      continue;
    bool isGather = step.collective.kind == CollectiveKind::AllGather;
    if (gathers && *gathers != isGather)
      break;
    gathers = isGather;
    end = i + 1;
  }
  return end;
}

Status MicroBatches::awaitLaunches(size_t half, Stream &stream,
                                   std::vector<const Stream *> &waiting) {
  if (!hasLaunched[1 - half] ||
      std::find(waiting.begin(), waiting.end(), &stream) != waiting.end())
    return Status::ok();
  waiting.push_back(&stream);
  return halves[half]->device.wait(stream, *launched[1 - half]);
}

Status MicroBatches::giveTurn(size_t half, size_t begin, size_t end,
                              Stream &first, const Executor::GiveStep &give) {
  Executor &executor = *halves[half];
  bool isFirst = true;
  std::vector<const Stream *> waiting;
  for (size_t i = begin; i < end; ++i) {
    const Executor::ResolvedStep &step = executor.resolved[i];
    bool meets = executor.isExchanged(step);
    Stream &stream = executor.streamOf(step, first);
    // A dependent launch always follows another one of its stream.
    if (step.kind == Step::Kind::Launch && !step.dims.dependent && isFirst)
      MOERT_CHECK(awaitLaunches(half, stream, waiting));
    if (meets && isFirst) {
      MOERT_CHECK(executor.device.record(stream, *launched[half]));
      hasLaunched[half] = true;
      if (hasMet)
        MOERT_CHECK(executor.device.wait(stream, *met));
    }
    isFirst = isFirst && !meets;
    MOERT_CHECK(give(executor, i, first));
    if (!meets || i + 1 < end)
      continue;
    MOERT_CHECK(executor.device.record(stream, *met));
    hasMet = true;
  }
  return Status::ok();
}

Status MicroBatches::giveSteps(Stream &first, const Executor::GiveStep &give) {
  Device &device = halves[0]->device;
  Stream &second = *halves[1]->streams[0];
  MOERT_CHECK(device.record(first, *begun));
  MOERT_CHECK(device.wait(second, *begun));
  hasMet = false;
  hasLaunched = {};
  std::array<size_t, 2> next = {};
  auto isDone = [&](size_t half) {
    return next[half] == halves[half]->resolved.size();
  };
  for (size_t half = 0; !isDone(0) || !isDone(1); half = 1 - half) {
    size_t end = findTurnEnd(half, next[half]);
    MOERT_CHECK(
        giveTurn(half, next[half], end, half == 0 ? first : second, give));
    next[half] = end;
  }
  MOERT_CHECK(device.record(second, *ended));
  return device.wait(first, *ended);
}

Status MicroBatches::run(Stream &first) {
  for (const std::unique_ptr<Executor> &half : halves)
    if (half->options.poison)
      MOERT_CHECK(half->poison(first, half->resolvedTokens));
  return giveSteps(first, [](Executor &executor, size_t step, Stream &stream) {
    return executor.runOfHalf(step, stream);
  });
}

bool MicroBatches::hasReplaced(Replaced made) const {
  return halves[0]->hasReplaced(made) || halves[1]->hasReplaced(made);
}

Status MicroBatches::runReplaced(Replaced made, Stream &stream) {
  MOERT_CHECK(halves[0]->runReplaced(made, stream));
  return halves[1]->runReplaced(made, stream);
}

} // namespace moert
