//===- Flow.h - what follows what in a kernel -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_FLOW_FLOW_H
#define MOEC_LIB_PTX_MUTATE_FLOW_FLOW_H

#include "../../Sim/Program/PtxText.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace moec::ptx::mutate {

/// A value as the threads of a warp, or of a CTA, see it at the same time:
/// `stride` times the thread's number, plus something that all have in common.
struct Affine {
  int64_t stride = 0;
};

/// The one of which `number`, a register, is `value`.
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
  /// All instructions that are met on the ways from `index`, which is not one
  /// of them unless in a loop, up to those that `stops`, which are left out.
  std::set<size_t> walk(size_t index, bool isForward,
                        const std::function<bool(size_t)> &stops) const;
  /// Whether all threads of a CTA come here, or none: whichever way a branch
  /// goes that they may disagree about, this comes next or cannot come.
  bool isReachedByAll(size_t index) const;

  /// The instruction that writes the register, if there is one only.
  std::optional<size_t> definition(const std::string &name) const;
  /// How the value differs from thread to thread; none if that is not known.
  std::optional<Affine> affine(const RawOperand &operand, Scope scope) const;
  /// The one variable that an address leads into; empty if it is not known.
  std::string variable(const RawOperand &operand) const;
  /// The thread that alone executes the instruction, as it stands behind a
  /// branch or guard that compares the thread's number; none if there may be
  /// several.
  std::optional<OneThread> oneThread(size_t index, Scope scope) const;

  /// What `compute` finds out about the whole kernel, for which `key` stands:
  /// computed once, for all mutants of all threads.
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
  /// Registers that one question has come to already.
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

/// Whether it changes nothing but the thread's own registers, by what is in
/// them or in memory.
bool isPrivate(const RawInstruction &instruction);

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_FLOW_FLOW_H
