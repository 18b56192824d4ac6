//===- ExpertMove.h - moves experts between ranks at run time ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_EXPERTMOVE_H
#define MOERT_EXPERTMOVE_H

#include "moert/Executor.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moert {

struct ExpertMoveOptions {
  /// The layer's current map and its new one (Balance.h); equal on all ranks.
  std::vector<int64_t> from, to;
  /// Unused memory for each tensor of ExpertMove::tensorNames(), laid out as
  /// the layer expects. The layer is bound to it at the end.
  std::vector<std::pair<std::string, TensorView>> spare;
};

/// Moves the experts of a layer of several ranks to where another map has them,
/// while the layer runs by the old map: memory that it reads is not written.
///
/// All ranks make the same calls, in the same order relative to other calls on
/// the same communicator. A failing call leaves the layer on its old map and
/// memory and ends the move: each later call returns that failure.
class ExpertMove {
public:
  /// Tensors that move: those with a row per expert, and the tables of
  /// replicas. Empty for a layer without replicas over ranks.
  static std::vector<std::string> tensorNames(const Plan &plan);

  /// Checks the memory, and the maps against the layer's tables and other
  /// ranks' maps. `communicator` has the layer's mesh; with one other than the
  /// layer's, the layer can continue after a failed move. Executor, device and
  /// memory outlive the move.
  static Result<std::unique_ptr<ExpertMove>>
  begin(Executor &executor, Device &device,
        std::shared_ptr<Communicator> communicator, ExpertMoveOptions options);

  /// Remaining steps; initially the number of experts per rank.
  int64_t numSteps() const { return numExpertsHere - numGiven; }

  /// Enqueues the transfer of one expert per rank, local ones included, on the
  /// move's own stream, beside the layer's work.
  Status step();

  /// Waits for all steps of all ranks, then binds the layer to the new memory,
  /// tables and experts: its next run uses the new map. Runs enqueued before
  /// read the old memory until they are complete. Clones and captured graphs
  /// keep the old map and must be made anew.
  Status switchOver();

private:
  ExpertMove(Executor &executor, Device &device,
             std::shared_ptr<Communicator> communicator,
             ExpertMoveOptions options)
      : executor(executor), device(device),
        communicator(std::move(communicator)), options(std::move(options)) {}

  /// The rows of an expert in one tensor, before and after the move.
  struct Rows {
    char *from = nullptr, *to = nullptr;
    int64_t fromStride = 0, toStride = 0;
    /// Bytes of one expert.
    int64_t bytes = 0;
  };

  Status open();
  Status checkMaps();
  Status checkTables();
  Status addTensor(const std::string &name, const TensorView &spare);
  Status fillTable(const std::string &name, const TensorView &spare);
  Result<std::vector<int32_t>> readTable(const std::string &name) const;
  Transfer makeTransfer(int64_t index) const;
  /// Ends the move with this failure.
  Status fail(const Status &status);

  Executor &executor;
  Device &device;
  const std::shared_ptr<Communicator> communicator;
  const ExpertMoveOptions options;
  std::unique_ptr<Stream> stream;
  int64_t numExperts = 0, maxReplicas = 0;
  /// Physical experts per rank.
  int64_t numExpertsHere = 0;
  int64_t numGiven = 0;
  std::vector<Rows> tensors;
  /// The first failure, or the reason that the move has ended.
  Status ended;
};

} // namespace moert

#endif // MOERT_EXPERTMOVE_H
