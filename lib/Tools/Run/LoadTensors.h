//===- LoadTensors.h - tensors from checkpoints and files -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_LOADTENSORS_H
#define MOEC_LIB_TOOLS_RUN_LOADTENSORS_H

#include "HostTensor.h"
#include "moec/Checkpoint/LocateLayer.h"

namespace moec {

/// What is looked for where there is no spec: canonical names alone.
LayerRequest makeRequest(const std::vector<HostTensor> &tensors);

/// Fills weights from a model's folder or a file, and inputs where they are
/// there under their canonical names. Tensors of another type are converted
/// where that is exact. A failure names file, tensor, what was found and what
/// is accepted. A tensor that looks like one of the layer's but is none is a
/// failure too: it would be left out in silence.
/// `loaded` is called after each.
moert::Status
loadTensors(std::vector<HostTensor> &tensors, moert::Checkpoint &checkpoint,
            const LayerRequest &request,
            llvm::function_ref<void(const HostTensor &)> loaded = nullptr);

/// Fills inputs from a file that has what a call brings: by canonical names, or
/// its only tensor as hidden states.
moert::Status loadCall(std::vector<HostTensor> &tensors,
                       moert::Checkpoint &file);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_LOADTENSORS_H
