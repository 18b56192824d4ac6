//===- Layer.h - a layer in float64 -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference in C++: the formulas of docs/use/layers.md in float64, written
// from that page alone, for checks on machines without Python. Evaluates only
// what the requested rows need. python/moec/reference does the same, and a test
// compares the two.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_REFERENCE_LAYER_H
#define MOEC_REFERENCE_LAYER_H

#include "moec/Reference/Router.h"

namespace moec::reference {

/// Ids and weights of all tokens, top_k each.
struct Decision {
  std::vector<int64_t> ids;
  std::vector<double> weights;
};

/// Formula 1 for the given tokens.
Matrix computeLogits(const Call &call, llvm::ArrayRef<int64_t> tokens);

/// The router logits of all tokens, from the call or computed.
Matrix getLogits(const Call &call);

/// Routes all tokens; ignores `logits` with entry `ids`.
Decision decide(const Call &call, const Matrix &logits);

/// Calls `body` with the routing of each token, from several threads.
void forEachRoutedRow(
    const Call &call, const Matrix &logits,
    llvm::function_ref<void(int64_t, const RoutedRow &)> body);

/// Index of each id's weights; -1 for zero experts and experts of other ranks.
std::vector<int64_t> getLocalIndex(const LayerSpec &spec);

/// Indices of the weights that the slots of a token read.
class ExpertIndices {
public:
  explicit ExpertIndices(const Call &call);

  /// -1 for none.
  int64_t find(int64_t token, int64_t id) const;

private:
  std::vector<int64_t> index;
  /// `most`: the most replicas of an expert; 0 without replicas.
  int64_t numPhysical = 0, most = 0;
  std::vector<double> counts, physical;
};

/// Whether a slot of a token is valid (formula 6).
bool isValidSlot(const LayerSpec &spec, int64_t numValid, int64_t token,
                 int64_t id);

/// Formulas 7 to 11 for the given tokens: one row each, rounded to the layer
/// dtype.
Matrix evaluate(const Call &call, const Decision &decision,
                llvm::ArrayRef<int64_t> tokens);

/// Multiplications and additions of evaluate() for a token whose slots are all
/// valid, without the router.
double countOperationsPerToken(const LayerSpec &spec);

} // namespace moec::reference

#endif // MOEC_REFERENCE_LAYER_H
