//===- Inputs.h - inputs and weights of a case ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_INPUTS_INPUTS_H
#define MOEC_VERIFY_GPUTEST_INPUTS_INPUTS_H

#include "../Cases/Case.h"
#include "Tools/Run/HostTensor.h"
#include "moec/Reference/Layer.h"

namespace moec::gputest {

/// An input or a weight. Small tensors, and those changed by a rule, are in
/// memory; matrices are generated where they are needed.
struct InputTensor {
  /// Memory is allocated only without `random`.
  HostTensor host;
  std::optional<RandomTensor> random;
  bool isPerToken = false;
};

class Inputs {
public:
  /// Fills them by the rules of the case.
  static moert::Result<Inputs> create(const LayerCase &from,
                                      const LayerSpec &spec);

  const LayerSpec &getSpec() const { return spec; }
  int64_t getNumTokens() const { return tokens; }
  uint64_t getSeed() const { return seed; }
  std::vector<InputTensor> &getTensors() { return tensors; }
  const std::vector<InputTensor> &getTensors() const { return tensors; }
  /// Null if the layer has no such tensor.
  InputTensor *find(llvm::StringRef name);

  /// The call for the reference, which reads the memory of these inputs.
  reference::Call makeCall(int threads) const;

private:
  Inputs(const LayerSpec &spec, int64_t tokens, uint64_t seed)
      : spec(spec), tokens(tokens), seed(seed) {}

  moert::Status fill(InputTensor &tensor, double deviation);

  LayerSpec spec;
  int64_t tokens;
  uint64_t seed;
  std::vector<InputTensor> tensors;
};

/// Element i of a tensor in memory.
double getElement(const HostTensor &tensor, int64_t i);
/// Rounds to the tensor's type.
void setElement(const HostTensor &tensor, int64_t i, double value);

/// The sequence of random numbers of a rule.
class Draw {
public:
  Draw(uint64_t seed, llvm::StringRef name) : stream(seed, name) {}
  /// In [0, 1).
  double uniform() { return double(stream.getBits(next++) >> 11) * 0x1p-53; }
  /// In 0 .. count-1.
  int64_t below(int64_t count) {
    return static_cast<int64_t>(stream.getBits(next++) %
                                static_cast<uint64_t>(count));
  }
  double normal() { return getFactor(1) * stream.getSum(next++); }

private:
  RandomStream stream;
  uint64_t next = 0;
};

/// Distinct ids in random order.
std::vector<int64_t> drawIds(Draw &draw, int64_t routes, int64_t topK);

/// Makes the inputs hard by a named rule. Fails if there is no such rule, or
/// the layer lacks what the rule changes.
moert::Status applyHardInputs(const std::string &rule, double share,
                              Inputs &inputs);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_INPUTS_INPUTS_H
