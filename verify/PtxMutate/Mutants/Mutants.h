//===- Mutants.h - deletions and weakenings ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_MUTANTS_MUTANTS_H
#define MOEC_VERIFY_PTXMUTATE_MUTANTS_MUTANTS_H

#include "PtxSim/Program/PtxText.h"

#include <functional>

namespace moec::ptx::mutate {

/// Class of a mutant, by the share of mutants that may be missed.
enum class Group : uint8_t {
  /// Waits, expected bytes, arrivals, commits, proxy fences, CTA barriers:
  /// none.
  Strict,
  /// Other synchronization: 5 %.
  Sync,
  /// Indices and masks: 2 %.
  Index,
  /// Orders of sums in f32: none.
  Order,
};

const char *groupName(Group group);

/// One change of one instruction.
struct Mutant {
  Group group = Group::Index;
  /// Such as "mbarrier wait", "proxy fence", "address".
  std::string kind;
  /// Such as "deleted", "+4 bytes".
  std::string change;
  /// Index and line of the instruction in the original.
  size_t index = 0;
  unsigned line = 0;
  std::function<void(RawKernel &)> apply;
};

/// All mutants of a kernel's synchronization, indices and masks, in the order
/// of its text.
std::vector<Mutant> listMutants(const RawKernel &kernel);
/// Mutants that swap two products of a sum each: it has the same terms and
/// other bits, which a rounding of the result may hide.
std::vector<Mutant> listSumOrderMutants(const RawKernel &kernel);

// Parts of listMutants().
void addWaitMutants(const RawKernel &kernel, size_t index,
                    std::vector<Mutant> &mutants);
void addSignalMutants(const RawKernel &kernel, size_t index,
                      std::vector<Mutant> &mutants);
void addOrderMutants(const RawKernel &kernel, size_t index,
                     std::vector<Mutant> &mutants);
void addIndexMutants(const RawKernel &kernel, size_t index,
                     std::vector<Mutant> &mutants);

/// A mutant that deletes the instruction at `index`.
Mutant makeDeletion(Group group, const std::string &kind, size_t index);
Mutant makeMutant(Group group, const std::string &kind,
                  const std::string &change, size_t index,
                  std::function<void(RawKernel &)> apply);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_MUTANTS_MUTANTS_H
