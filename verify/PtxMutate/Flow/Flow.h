//===- Flow.h - control and data flow of a kernel ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_FLOW_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_FLOW_H

#include "PtxSim/Program/PtxText.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace moec::ptx::mutate {

/// A value as the threads of a warp or CTA see it at the same time: `stride`
/// times the thread's number, plus a common term.
struct Affine {
  int64_t stride = 0;
};

/// The thread for which register `number` equals `value`.
struct OneThread {
  std::string number;
  uint64_t value = 0;
};

enum class Scope : uint8_t { Warp, Cta };

/// Control and data flow of a kernel.
class Flow {
public:
  explicit Flow(const RawKernel &kernel);

  const RawKernel &kernel;

  const std::vector<size_t> &successors(size_t index) const {
    return next[index];
  }
  const std::vector<size_t> &predecessors(size_t index) const {
    return previous[index];
  }
  /// All instructions on the paths from `index` up to those that `stops`
  /// accepts, which are excluded. `index` is included only if it is in a loop.
  std::set<size_t> walk(size_t index, bool isForward,
                        const std::function<bool(size_t)> &stops) const;
  /// Whether all threads of a CTA reach this instruction, or none: from each
  /// branch at which threads may diverge, every path leads here, or none does.
  bool isReachedByAll(size_t index) const;

  /// The instruction that writes the register, if it is the only one.
  std::optional<size_t> definition(const std::string &name) const;
  /// The value's dependence on the thread; none if unknown.
  std::optional<Affine> affine(const RawOperand &operand, Scope scope) const;
  /// The one variable that an address points into; empty if unknown.
  std::string variable(const RawOperand &operand) const;
  /// The only thread that executes the instruction, given by a guard or branch
  /// that compares the thread's number; none if there may be several.
  std::optional<OneThread> oneThread(size_t index, Scope scope) const;

  /// Caches what `compute` derives for the whole kernel under `key`, for all
  /// mutants and threads of the tool.
  template <typename Result>
  const Result &remember(const void *key,
                         const std::function<Result()> &compute) const {
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<void> &known = results[key];
    if (!known)
      known = std::make_shared<Result>(compute());
    return *static_cast<const Result *>(known.get());
  }

private:
  /// Registers that one query has visited.
  using Known = std::map<std::string, std::optional<Affine>>;
  std::optional<Affine> find(const RawOperand &operand, Scope scope,
                             unsigned depth, Known &known) const;
  std::optional<Affine> compute(const RawOperand &operand, Scope scope,
                                unsigned depth, Known &known) const;

  std::vector<std::vector<size_t>> next, previous;
  /// Per register, all instructions that write it.
  std::map<std::string, std::vector<size_t>> writers;
  mutable std::mutex mutex;
  mutable std::map<const void *, std::shared_ptr<void>> results;
};

/// Registers that the instruction writes.
std::vector<std::string> resultsOf(const RawInstruction &instruction);

/// Whether the instruction changes only the thread's own registers, depending
/// only on registers and memory.
bool isPrivate(const RawInstruction &instruction);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_FLOW_H
