//===- LayerRanks.h - the ranks that run a layer ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_LAYERRANKS_H
#define MOERT_SRC_EXECUTOR_LAYERRANKS_H

#include "LoadedLayer.h"
#include "moert/Communicator.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace moert {

/// Which rank of a layer this is, and how its ranks run batches together. A
/// value: clones have a copy, and share the communicator.
struct LayerRanks {
  explicit LayerRanks(std::shared_ptr<const LoadedLayer> layer)
      : layer(std::move(layer)) {}

  /// Executor::checkRank().
  Status checkRank(int64_t number) const;
  /// Executor::useMicroBatches().
  Status useMicroBatches(int64_t fromTokens);
  Status checkCommunicator(const Communicator *made) const;
  /// Agrees with the other ranks on what they run, and reserves the memory of
  /// collectives. A failure changes nothing here. No earlier run is under way.
  Status useCommunicator(std::shared_ptr<Communicator> made);

  /// Success if the layer takes batches of `tokens` tokens now.
  Status checkTokens(int64_t tokens) const;
  /// Executor::workspaceBytes().
  Result<int64_t> workspaceBytes(int64_t tokens) const;
  /// Whether a run of `tokens` tokens is two micro-batches: it is large enough,
  /// and the halves may run side by side.
  Result<bool> isHalved(int64_t tokens) const;
  /// Waits for a stream, no longer than the communicator's limit.
  Status synchronize(Stream &stream) const;

  std::shared_ptr<const LoadedLayer> layer;
  std::optional<int64_t> rank;
  std::shared_ptr<Communicator> communicator;
  /// Tokens per rank; 0 means never.
  int64_t microBatchesFrom = 0;
  /// Per axis: bytes of the communicator's results() that are reserved.
  std::array<int64_t, 2> resultBytes = {};

private:
  bool hasMicroBatches(int64_t tokens) const;
  /// Per axis: bytes of results() for all variants.
  Result<std::array<int64_t, 2>> countReserved() const;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_LAYERRANKS_H
