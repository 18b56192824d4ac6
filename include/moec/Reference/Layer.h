//===- Layer.h - a layer in float64 -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formulas of docs/layers.md, written from that page alone, in C++: for
// checks on machines without Python. Only what the rows that are asked for
// need is evaluated. python/moec/reference does the same; a test holds the two
// against each other.
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

/// Formula 1 for some tokens.
Matrix computeLogits(const Call &call, llvm::ArrayRef<int64_t> tokens);

/// The router logits of all tokens: those of the call, or computed.
Matrix getLogits(const Call &call);

/// Routes all tokens; `logits` are not looked at with entry `ids`.
Decision decide(const Call &call, const Matrix &logits);

/// Calls `body` with the routing of each token, from several threads.
void forEachRoutedRow(
    const Call &call, const Matrix &logits,
    llvm::function_ref<void(int64_t, const RoutedRow &)> body);

/// Position of each id's weights, -1 for those without: zero experts, and those
/// that are not held here.
std::vector<int64_t> getLocalIndex(const LayerSpec &spec);

/// Where the weights lie that the slots of a token read.
class ExpertPlaces {
public:
  explicit ExpertPlaces(const Call &call);

  /// -1 for none.
  int64_t find(int64_t token, int64_t id) const;

private:
  std::vector<int64_t> index;
  /// No replicas of any expert if `most` is 0.
  int64_t numPhysical = 0, most = 0;
  std::vector<double> counts, physical;
};

/// Whether a slot of a token counts (formula 6).
bool isValidSlot(const LayerSpec &spec, int64_t numValid, int64_t token,
                 int64_t id);

/// Formulas 7 to 11 for some tokens: a row each, rounded to the layer dtype.
Matrix evaluate(const Call &call, const Decision &decision,
                llvm::ArrayRef<int64_t> tokens);

/// Multiplications and additions that evaluate() takes for a token with all its
/// slots valid, without the router's.
double countOperationsPerToken(const LayerSpec &spec);

} // namespace moec::reference

#endif // MOEC_REFERENCE_LAYER_H
