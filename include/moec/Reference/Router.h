//===- Router.h - ids and weights from logits -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formulas 2 to 6 of docs/use/layers.md, in float64.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_REFERENCE_ROUTER_H
#define MOEC_REFERENCE_ROUTER_H

#include "moec/Reference/Tensors.h"
#include "llvm/ADT/ArrayRef.h"

namespace moec::reference {

/// The router of a call of entry `gate` or `logits`.
class Router {
public:
  explicit Router(const Call &call);

  const LayerSpec &getSpec() const { return spec; }
  bool isHash() const { return spec.routing.select == Select::Hash; }

private:
  friend class RoutedRow;
  LayerSpec spec;
  /// Zeros without a bias.
  std::vector<double> selectionBias;
  /// Empty without scales.
  std::vector<double> expertScale;
  std::vector<double> hashTable;
};

/// The routing of one token.
class RoutedRow {
public:
  /// `inputId` is read only with select `hash`. Ids that are replayed are
  /// `given`.
  RoutedRow(const Router &router, llvm::ArrayRef<double> logits,
            int64_t inputId, llvm::ArrayRef<double> given = {});

  llvm::ArrayRef<int64_t> getIds() const { return ids; }
  /// Whether these ids, in this order, are right: equal to getIds() except for
  /// near ties (keys up to 4 ulp of f32 apart).
  bool accepts(llvm::ArrayRef<int64_t> other) const;
  /// Formula 5 for the ids, rounded to f32.
  void weigh(llvm::ArrayRef<int64_t> which,
             llvm::MutableArrayRef<double> weights) const;
  /// Distance of two experts' keys in ulp of f32, rounded up.
  int64_t getKeyDistance(int64_t a, int64_t b) const;

private:
  void weighSparseMixer(llvm::ArrayRef<int64_t> which,
                        llvm::MutableArrayRef<double> weights) const;
  void weighSelected(llvm::ArrayRef<int64_t> which,
                     llvm::MutableArrayRef<double> weights) const;
  bool counts(int64_t id) const;

  const Router *router;
  /// The scores, 0 for those that count as 0.
  std::vector<double> value;
  std::vector<bool> isBad;
  /// Orders of the keys; empty with select `hash`.
  std::vector<int64_t> order;
  /// Orders of the groups' keys, if groups are selected.
  std::vector<int64_t> groupOrder;
  std::vector<int64_t> ids;
  /// Whether no key is finite: weights are 1 / k.
  bool isDead = false;
};

} // namespace moec::reference

#endif // MOEC_REFERENCE_ROUTER_H
