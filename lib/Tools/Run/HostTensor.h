//===- HostTensor.h - host tensors of a run ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_HOSTTENSOR_H
#define MOEC_LIB_TOOLS_RUN_HOSTTENSOR_H

#include "moec/Import/TensorSignature.h"
#include "moert/Executor.h"
#include "moert/Plan.h"
#include "moert/Safetensors.h"

#include <initializer_list>
#include <memory>

namespace moec {

/// A tensor that moe-run owns. The memory is aligned to 64 bytes.
struct HostTensor {
  std::string name;
  moert::TensorRole role = moert::TensorRole::Input;
  moert::DType dtype = moert::DType::F32;
  std::vector<int64_t> shape;
  /// Whether the values are set already, so that they are neither generated nor
  /// loaded.
  bool isGiven = false;

  /// Null for a tensor without elements.
  uint8_t *data() const { return storage.get(); }
  int64_t getNumElements() const;
  size_t getNumBytes() const;
  moert::TensorView getView() const;
  moert::SafetensorsTensor getEntry() const;

  /// (Re)allocates for the shape; contents are undefined.
  moert::Status allocate();

  /// Copies the tensor to `spread` with a row pitch that is `gap` elements
  /// longer, and bytes 0xFF (NaN) in the gaps; `strides` are those of this
  /// shape in the copy.
  moert::Status spreadRows(int64_t gap, HostTensor &spread,
                           std::vector<int64_t> &strides) const;

private:
  struct Free {
    void operator()(uint8_t *memory) const;
  };
  std::unique_ptr<uint8_t, Free> storage;
};

std::vector<const HostTensor *>
getPointers(const std::vector<HostTensor> &tensors);

/// The tensors of some roles of a plan for `tokens` tokens, without memory.
moert::Result<std::vector<HostTensor>>
describeTensors(const moert::Plan &plan, int64_t tokens,
                std::initializer_list<moert::TensorRole> roles);

/// The inputs, weights and outputs of a plan for `tokens` tokens, allocated.
/// Fails, instead of letting the process be killed, if they and the workspace
/// need more memory than this machine has free.
moert::Result<std::vector<HostTensor>> allocateTensors(const moert::Plan &plan,
                                                       int64_t tokens);
/// The tensors of some roles, without a check of free memory.
moert::Result<std::vector<HostTensor>>
allocateTensors(const moert::Plan &plan, int64_t tokens,
                std::initializer_list<moert::TensorRole> roles);

struct GenerateOptions {
  uint64_t seed = 0;
  /// Generated expert ids are below this.
  int64_t numExperts = 1;
  /// With replicas, the expert of each physical one; if empty, the expert of
  /// physical p is p modulo the number of experts.
  std::vector<int64_t> logicalIds = {};
};

/// The replica tables that are not given, by the expert of each physical one.
/// If `logicalIds` is empty, that is its index modulo the number of experts.
/// Empty for a layer without replicas.
moert::Result<std::vector<NamedTable>>
makeReplicaTables(const std::vector<HostTensor> &tensors,
                  std::vector<int64_t> logicalIds);

/// Fills inputs and weights with pseudo-random values that depend only on seed
/// and tensor name: weights of variance 1 / (contracted size), so that every
/// intermediate is of the order of one, distinct expert ids, weights that sum
/// to one, all tokens valid. Fails on a dtype for which no values can be
/// generated.
moert::Status generateTensors(std::vector<HostTensor> &tensors,
                              const GenerateOptions &options);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_HOSTTENSOR_H
