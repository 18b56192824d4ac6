//===- Report.cpp - prints the times of a compilation ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/Jit.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;

void moec::printStage(llvm::StringRef name, double seconds,
                      llvm::raw_ostream &os, llvm::StringRef more) {
  os << llvm::formatv("{0,-34} {1,9:f2} ms{2}\n", name, seconds * 1e3, more);
}

void moec::printReport(const JitReport &report, llvm::raw_ostream &os) {
  printStage("parse", report.parse, os);
  if (report.find > 0)
    printStage("cache", report.find, os, report.fromCache ? "  hit" : "  miss");
  // Stages of a compilation for the host are not measured separately.
  if (!report.fromCache && report.compile.kernels > 0) {
    const CompileTimes &compile = report.compile;
    printStage("lower to tile", compile.lower, os);
    printStage("convert to nvvm", compile.convert, os);
    for (const KernelTimes &kernel : compile.perKernel) {
      printStage("  " + kernel.name + ": PTX", kernel.emit, os);
      if (kernel.assemble > 0)
        printStage("  " + kernel.name + ": ptxas", kernel.assemble, os);
    }
    printStage("kernels, side by side", compile.kernels, os);
    if (report.store > 0)
      printStage("store in the cache", report.store, os);
  }
  printStage("compiled", report.total, os);
}
