//===- LoadTensors.h - loads tensors from files -----------------*- C++ -*-===//
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

/// The request for a layer without a spec: canonical names only.
LayerRequest makeRequest(const std::vector<HostTensor> &tensors);

class TensorMemory {
public:
  virtual ~TensorMemory();

  /// Returns host memory for `bytes` bytes of a tensor from `offset` on; by
  /// default that of the tensor itself. All of it is filled if `isWhole`;
  /// otherwise it must have the tensor's contents.
  virtual moert::Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                                        size_t bytes, bool isWhole);
  /// Called once the memory that was opened last is filled.
  virtual moert::Status close();
  /// Copies rows from the memory of a device to that of a tensor, whose bytes
  /// `rows.to` counts. False if that takes a copy in host memory.
  virtual moert::Result<bool> copyRows(const HostTensor &tensor,
                                       const moert::RowCopy &rows);
};

/// Fills weights from a model's folder or a file, and inputs that are there
/// under their canonical names. Experts are filled matrix by matrix, straight
/// from the mapped file; a rank reads only its part. Tensors of another type
/// are converted if that is exact. A failure names file, tensor, what was found
/// and what is accepted. A tensor that looks like one of the layer's but is
/// none is an error, because it would be silently ignored. `read` is called
/// with the bytes of each matrix.
moert::Status loadTensors(std::vector<HostTensor> &tensors,
                          moert::Checkpoint &checkpoint,
                          const LayerRequest &request,
                          llvm::function_ref<void(size_t)> read = nullptr);
/// Loads into `memory`; the memory of the tensors is not used.
moert::Status loadTensors(std::vector<HostTensor> &tensors,
                          moert::Checkpoint &checkpoint,
                          const LayerRequest &request, TensorMemory &memory,
                          llvm::function_ref<void(size_t)> read = nullptr);

/// Loads only the located tensors and parts; `layer` may be a part of what
/// locateLayer() returns. Tensors become `isGiven` nowhere.
moert::Status loadParts(std::vector<HostTensor> &tensors,
                        moert::Checkpoint &checkpoint,
                        const LayerRequest &request, LocatedLayer layer,
                        TensorMemory &memory,
                        llvm::function_ref<void(size_t)> read = nullptr);
/// Fills the weights that are in no checkpoint: tables of replicas and ranks.
moert::Status loadTables(std::vector<HostTensor> &tensors,
                         const LayerRequest &request, TensorMemory &memory,
                         llvm::function_ref<void(size_t)> read = nullptr);

/// Fills inputs from a file of a call's inputs: by canonical names, or its only
/// tensor as `hidden_states`.
moert::Status loadCall(std::vector<HostTensor> &tensors,
                       moert::Checkpoint &file);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_LOADTENSORS_H
