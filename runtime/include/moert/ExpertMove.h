//===- ExpertMove.h - experts to other ranks, while layers run --*- C++ -*-===//
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
  /// The map that the layer has, and the one that it will have (Balance.h); the
  /// same on all ranks.
  std::vector<int64_t> from, to;
  /// Memory for each tensor of ExpertMove::tensorNames(), of the form that the
  /// layer takes, which nothing uses: the layer is bound to it at the end.
  std::vector<std::pair<std::string, TensorView>> spare;
};

/// Brings the experts of a layer of several ranks to where another map has
/// them, while the layer runs by the old one: what it reads is not written.
///
/// All ranks make the same calls, in the same order as others on the same
/// communicator. A call that fails leaves the layer as it is, on its old map
/// and memory, and ends the move: each later call answers that failure.
class ExpertMove {
public:
  /// What moves: tensors with a row per expert, and the tables of replicas.
  /// Empty for a layer without replicas over ranks.
  static std::vector<std::string> tensorNames(const Plan &plan);

  /// Checks the maps, against the layer's tables and those of other ranks, and
  /// the memory. `communicator` is of the layer's mesh; where it is not the one
  /// that the layer has, the layer goes on when the move fails. Executor,
  /// device and memory outlive the move.
  static Result<std::unique_ptr<ExpertMove>>
  begin(Executor &executor, Device &device,
        std::shared_ptr<Communicator> communicator, ExpertMoveOptions options);

  /// Steps that are left; as many as a rank has experts at first.
  int64_t numSteps() const { return numExpertsHere - numGiven; }

  /// Gives the transfer of one expert for each rank, its own ones too, to a
  /// stream of the move's own, beside what the layer does.
  Status step();

  /// Waits for all steps, of all ranks, and binds the layer to the new memory,
  /// tables and experts at once: its next run is by the new map. Runs that were
  /// given before read the old memory until they are complete. Clones and
  /// captured graphs have the old map, and are made anew.
  Status switchOver();

private:
  ExpertMove(Executor &executor, Device &device,
             std::shared_ptr<Communicator> communicator,
             ExpertMoveOptions options)
      : executor(executor), device(device),
        communicator(std::move(communicator)), options(std::move(options)) {}

  /// An expert's rows of a tensor, before and after.
  struct Rows {
    char *from = nullptr, *to = nullptr;
    int64_t fromStride = 0, toStride = 0;
    /// Of one expert.
    int64_t bytes = 0;
  };

  Status open();
  Status checkMaps();
  Status checkTables();
  Status addTensor(const std::string &name, const TensorView &spare);
  Status fillTable(const std::string &name, const TensorView &spare);
  Result<std::vector<int32_t>> readTable(const std::string &name) const;
  Transfer makeTransfer(int64_t place) const;
  /// Ends the move.
  Status fail(const Status &status);

  Executor &executor;
  Device &device;
  const std::shared_ptr<Communicator> communicator;
  const ExpertMoveOptions options;
  std::unique_ptr<Stream> stream;
  int64_t numExperts = 0, maxReplicas = 0;
  /// Physical ones of a rank.
  int64_t numExpertsHere = 0;
  int64_t numGiven = 0;
  std::vector<Rows> tensors;
  /// The first failure, or that the move has ended.
  Status ended;
};

} // namespace moert

#endif // MOERT_EXPERTMOVE_H
