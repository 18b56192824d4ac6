//===- MeasureHost.h - measures rates of this CPU ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_HOST_MEASUREHOST_H
#define MOEC_LIB_TOOLS_HOST_MEASUREHOST_H

#include "moec/Schedules/Device.h"
#include "moert/Status.h"

namespace moec {

/// Measures the rates of this CPU on as many threads as a host device has: some
/// 0.5 s and 512 MiB. Each rate is the best of several rounds. `target` says
/// which instructions the CPU has. Fails on a CPU without AVX2.
moert::Result<HostRates> measureHost(const Target &target);

} // namespace moec

#endif // MOEC_LIB_TOOLS_HOST_MEASUREHOST_H
