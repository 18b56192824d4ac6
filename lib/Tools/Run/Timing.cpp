//===- Timing.cpp - run times and load times of a layer ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Timing.h"

#include "PlanRun.h"
#include "moec/Compiler/CompileTimes.h"
#include "moec/Jit/Jit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace moec;
using moert::Result;
using moert::Status;

/// Runs enqueued before the stream is synchronized. With a full launch queue
/// the driver would block without a time limit, and forever if a collective
/// waits for a rank that is gone.
static constexpr int64_t kRunsAhead = 16;

Result<std::vector<double>> moec::timeOnHost(moert::Device &,
                                             moert::Executor &executor,
                                             moert::Stream &stream,
                                             int64_t repeat,
                                             llvm::function_ref<Status()> run) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeat; ++i) {
    double begin = getSeconds();
    if (Status status = run(); !status)
      return status;
    if (Status status = executor.synchronize(stream); !status)
      return status;
    seconds.push_back(getSeconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

Result<std::vector<double>> moec::timeOnGpu(moert::Device &device,
                                            moert::Executor &executor,
                                            moert::Stream &stream,
                                            int64_t repeat,
                                            llvm::function_ref<Status()> run) {
  std::vector<std::unique_ptr<moert::Event>> events;
  int64_t numWaits = llvm::divideCeil(repeat, kRunsAhead);
  for (int64_t i = 0; i < repeat + numWaits; ++i) {
    Result<std::unique_ptr<moert::Event>> event = device.createTimedEvent();
    if (!event)
      return event.status();
    events.push_back(std::move(*event));
  }
  size_t next = 0;
  auto runTo = [&](moert::Event &event) {
    Status status = run();
    return status ? device.record(stream, event) : status;
  };
  for (int64_t i = 0; i < repeat; ++i) {
    // The run after a wait finds the GPU idle and is not timed.
    if (i % kRunsAhead == 0) {
      if (Status status = executor.synchronize(stream); !status)
        return status;
      if (Status status = runTo(*events[next++]); !status)
        return status;
    }
    if (Status status = runTo(*events[next++]); !status)
      return status;
  }
  if (Status status = executor.synchronize(stream); !status)
    return status;
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeat; ++i) {
    auto from = static_cast<size_t>(i + i / kRunsAhead);
    Result<double> took =
        device.elapsedSeconds(*events[from], *events[from + 1]);
    if (!took)
      return took.status();
    seconds.push_back(*took);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

Status moec::printLoadTimes(const moert::Package &package,
                            const moert::PackageChoice &choice,
                            moert::Device &device, double seconds,
                            llvm::raw_ostream &os) {
  const moert::PackageProgram &program = package.programs[choice.program];
  const moert::PackageImage &image = program.images[choice.image];
  Stopwatch watch;
  Result<std::unique_ptr<moert::Module>> module =
      device.loadModule(image.load());
  if (!module)
    return module.status();
  double load = watch.read();
  for (const moert::KernelDecl &kernel : program.plan.kernels)
    if (Result<moert::Kernel *> found = (*module)->kernel(kernel.name); !found)
      return found.status();
  double handles = watch.read();
  bool isPtx = image.kind == moert::ModuleImage::Kind::Ptx;
  printStage("modules loaded", load, os,
             isPtx ? "  PTX, by the driver's compiler" : "  cubins");
  printStage("kernel handles", handles, os);
  printStage("ready", seconds + load + handles, os);
  return Status::ok();
}
