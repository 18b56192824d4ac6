//===- WeightMemory.h - memory of a layer's weights -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_API_WEIGHTMEMORY_H
#define MOEC_LIB_TOOLS_API_WEIGHTMEMORY_H

#include "../Run/LoadTensors.h"
#include "Jit/CApi.h"

namespace moec {

/// Whether all weights are bound to memory that the layer owns, so that they
/// can be updated there.
bool ownsWeights(const moert_layer &layer,
                 const std::vector<HostTensor> &tensors);

/// Waits until neither runs of the layer nor their comparison read its weights.
moert::Status awaitReaders(moert_layer &layer);

/// Device memory for weights, bound to the layer all at once.
class DeviceMemory : public TensorMemory {
public:
  explicit DeviceMemory(moert_layer &layer) : layer(layer) {}

  moert::Status allocate(const std::vector<HostTensor> &tensors);
  /// Writes to the weights that the layer owns.
  void reuse() { buffers = layer.loaded; }

  moert::Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                                size_t bytes, bool isWhole) override;
  moert::Status close() override;
  moert::Result<bool> copyRows(const HostTensor &tensor,
                               const moert::RowCopy &rows) override;
  /// Waits until all copies are complete.
  moert::Status synchronize();
  moert::Status bind(const std::vector<HostTensor> &tensors);

private:
  bool isOfHost() const { return layer.device.architecture().empty(); }

  moert_layer &layer;
  std::map<std::string, std::shared_ptr<moert::Buffer>> buffers;
  /// Staging memory for `open`, unused if the device's memory is host memory,
  /// and the address on the device that it is copied to.
  std::vector<uint8_t> staged;
  uint8_t *target = nullptr;
  /// The stream of copies on the device; null before the first.
  std::unique_ptr<moert::Stream> stream;
};

/// Memory that is written over and over, to check tensors before a layer's
/// weights are overwritten.
class ScratchMemory : public TensorMemory {
public:
  moert::Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                                size_t bytes, bool isWhole) override;
  moert::Result<bool> copyRows(const HostTensor &tensor,
                               const moert::RowCopy &rows) override;

private:
  std::vector<uint8_t> scratch;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_API_WEIGHTMEMORY_H
