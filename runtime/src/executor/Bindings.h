//===- Bindings.h - tensors bound to a layer --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_BINDINGS_H
#define MOERT_SRC_EXECUTOR_BINDINGS_H

#include "BoundTensor.h"
#include "LoadedLayer.h"
#include "Overlap.h"
#include "TensorMapCache.h"
#include "moert/SharedWorkspace.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moert {

struct PreparedTensor;

/// Counts the changes of bindings, so that a resolved run can be compared with
/// them.
struct BindingsVersion {
  /// Changes other than those of `moves`.
  uint64_t layout = 0;
  /// Inputs and outputs that got another address and nothing else.
  uint64_t moves = 0;

  bool operator==(const BindingsVersion &other) const {
    return layout == other.layout && moves == other.moves;
  }
};

/// The tensors that one executor has bound to a layer, and the state of its
/// weights. A value: a copy keeps the runtime's memory alive and changes
/// independently. Calls are made one at a time. Memory that a call frees may
/// still be read by runs, for which the caller waits first.
class Bindings {
public:
  explicit Bindings(std::shared_ptr<const LoadedLayer> layer);

  /// Bindings for another executor of the layer: the same weights and prepared
  /// tensors, and no input or output.
  Bindings shareWeights() const;

  /// Executor::checkBinding().
  Status check(const std::string &name, const TensorView &view) const;
  /// Executor::bind(). A failure changes nothing.
  Status bind(const std::string &name, const TensorView &view);
  /// Executor::bound().
  Result<TensorView> find(const std::string &name) const;
  /// Whether the tensor is a weight in the runtime's memory, which bind()
  /// frees.
  bool ownsWeight(const std::string &name) const;

  const BoundTensor &operator[](size_t tensor) const { return tensors[tensor]; }
  /// Address of a bound or prepared tensor; null for a workspace tensor.
  void *addressOf(size_t tensor) const;
  /// addressOf() each tensor of the plan.
  std::vector<void *> findAddresses() const;
  /// The runtime's memory of weights and prepared tensors.
  std::vector<std::shared_ptr<Buffer>> findOwnMemory() const;
  const BindingsVersion &version() const { return changes; }
  /// Tensor maps of weights, which bind() encodes, and of runs.
  TensorMapCache &mapCache() { return maps; }

  /// Success if the weights are prepared, and all tensors are bound with the
  /// rows that `tokens` tokens need.
  Status checkReady(int64_t tokens) const;
  /// Success if no memory that a run of `tokens` tokens writes is bound to
  /// another tensor too: see Overlap.h.
  Status checkOverlap(int64_t tokens, WorkspaceView workspace);

  bool isPrepared() const { return hasPrepared; }
  /// Whether the weights were read from a prepared file.
  bool isFromFile() const { return hasFile; }
  /// The report of the last endPrepare().
  const PrepareReport &prepareReport() const { return report; }
  /// Success if the prepare steps may run: all weights have their values, and
  /// the steps write to no memory that another tensor uses.
  Status checkPrepare() const;
  /// Allocates prepared tensors, for which it returns the bytes. The weights
  /// are unprepared until endPrepare().
  Result<PrepareReport> beginPrepare();
  /// Marks weights that prepare steps write to.
  void markOverwritten();
  void endPrepare(const PrepareReport &made);
  /// Executor::releaseWeights().
  Status release();
  /// Replaces all weights and prepared tensors by those of a prepared file.
  Status useFile(const std::vector<PreparedTensor> &list);

private:
  /// Whether a prepared tensor is made in memory that the caller bound for the
  /// current weights.
  bool hasGivenMemory(size_t tensor) const {
    return tensors[tensor].bound &&
           (tensors[tensor].isNew || !haveWeightsMoved);
  }
  Status checkWeights() const;
  Status allocate(size_t tensor, PrepareReport &made);
  Status encodeMaps(size_t tensor, const BoundTensor &bound);

  std::shared_ptr<const LoadedLayer> layer;
  /// Per plan tensor; unbound for workspace tensors.
  std::vector<BoundTensor> tensors;
  TensorMapCache maps;
  /// Address ranges of weights and arguments; none after a weight was bound.
  std::optional<BoundMemory> memory;
  BindingsVersion changes;
  bool hasPrepared = false;
  /// Whether a weight was bound to other memory since the last prepare steps.
  bool haveWeightsMoved = true;
  bool hasFile = false;
  PrepareReport report;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_BINDINGS_H
