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

/// Where the values of tensors go.
class TensorMemory {
public:
  virtual ~TensorMemory();

  /// Memory of this process for so many bytes of a tensor from an offset on:
  /// that of the tensor itself, where nothing else is said.
  virtual moert::Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                                        size_t bytes);
  /// What was opened last has its values.
  virtual moert::Status close();
};

/// Fills weights from a model's folder or a file, and inputs where they are
/// there under their canonical names. Of experts it fills one matrix after the
/// other, straight from the mapped file; a rank of several looks at no more of
/// that than it has. Tensors of another type are converted where that is exact.
/// A failure names file, tensor, what was found and what is accepted. A tensor
/// that looks like one of the layer's but is none is a failure too: it would be
/// left out in silence.
/// `read` is called with the bytes of each matrix.
moert::Status loadTensors(std::vector<HostTensor> &tensors,
                          moert::Checkpoint &checkpoint,
                          const LayerRequest &request,
                          llvm::function_ref<void(size_t)> read = nullptr);
/// The same into memory elsewhere: that of the tensors is not looked at.
moert::Status loadTensors(std::vector<HostTensor> &tensors,
                          moert::Checkpoint &checkpoint,
                          const LayerRequest &request, TensorMemory &memory,
                          llvm::function_ref<void(size_t)> read = nullptr);

/// Fills inputs from a file that has what a call brings: by canonical names, or
/// its only tensor as hidden states.
moert::Status loadCall(std::vector<HostTensor> &tensors,
                       moert::Checkpoint &file);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_LOADTENSORS_H
