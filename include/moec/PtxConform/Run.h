//===- Run.h - runs forms on a device ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_RUN_H
#define MOEC_PTXCONFORM_RUN_H

#include "Form.h"
#include "moert/Device.h"

namespace moec::conform {

/// Buffers before and after a launch.
struct Outcome {
  Buffers before, after;
};

/// Loads `form`, or an assembled image of it, and launches it on the inputs of
/// each seed.
moert::Result<std::vector<Outcome>> runForm(moert::Device &device,
                                            const Form &form,
                                            const std::vector<uint64_t> &seeds,
                                            const Bytes &cubin = {});

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_RUN_H
