//===- HostRates.h - rates of this CPU, measured once -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Expected times on the CPU are by rates of the machine at hand, measured when
// the first ones are asked for, and kept in the cache's folder
// (`cpu-rates.json`). What is compiled depends on none of them.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_HOST_HOSTRATES_H
#define MOEC_LIB_TOOLS_HOST_HOSTRATES_H

#include "moec/Compiler/Compiler.h"
#include "moec/Schedules/Schedules.h"

namespace moec {

/// The target of a module at level tile, with rates for predictions: a part's,
/// or those of this CPU if code is for it. A CPU that was named has none, and
/// neither have ranks on CPUs.
Target getExpectedTarget(const CompileOptions &options, mlir::ModuleOp module);

/// Why there are no rates of a target: "...; ..." without an end.
std::string whyNoRates(const Target &target);

} // namespace moec

#endif // MOEC_LIB_TOOLS_HOST_HOSTRATES_H
