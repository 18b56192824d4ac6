//===- Timing.cpp - how long a layer takes to be ready ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Timing.h"

#include "moec/Compiler/CompileTimes.h"
#include "moec/Jit/Jit.h"

using namespace moec;
using moert::Result;
using moert::Status;

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
