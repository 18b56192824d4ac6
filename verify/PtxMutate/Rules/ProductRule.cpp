//===- ProductRule.cpp - wgmma fences of untouched registers ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Paths.h"
#include "../Mutants/Edit.h"
#include "Rules.h"

#include <algorithm>
#include <tuple>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Key of this analysis in Flow::remember().
const char kTouchesAreKnown = 0;

/// State of a thread since its last wgmma.fence.
struct Touches {
  /// Product registers were touched, or no fence has been executed yet.
  bool isAny = false;
  /// MMAs that were started; one bit per shape.
  uint64_t shapes = 0;

  void join(const Touches &other) {
    isAny |= other.isAny;
    shapes |= other.shapes;
  }
  bool operator<(const Touches &other) const {
    return std::tie(isAny, shapes) < std::tie(other.isAny, other.shapes);
  }
};

bool isProductFence(const RawInstruction &instruction) {
  return startsWith(instruction, "wgmma.fence");
}

/// Tracks accesses to the registers of a kernel's MMAs.
class TouchAnalysis {
public:
  explicit TouchAnalysis(const Flow &flow) : flow(flow) {
    for (const RawInstruction &instruction : flow.kernel.instructions)
      if (isProduct(instruction)) {
        addProductRegisters(instruction, registers);
        shapes.insert(opcodeOf(instruction));
      }
  }

  std::vector<Touches> solve() {
    auto step = [&](size_t index, Touches touches) {
      touches.isAny |= index == 0;
      return transfer(flow.kernel.instructions[index], touches);
    };
    return Paths<Touches>(flow, step).solve();
  }

  uint64_t shapeOf(const RawInstruction &product) const {
    constexpr long kMost = 63;
    long number = std::distance(shapes.begin(), shapes.find(opcodeOf(product)));
    return uint64_t(1) << std::min(number, kMost);
  }

private:
  Touches transfer(const RawInstruction &instruction, Touches touches) const {
    if (isProductFence(instruction))
      return instruction.guard.empty() ? Touches() : touches;
    if (isProduct(instruction)) {
      touches.shapes |= shapeOf(instruction);
      return touches;
    }
    std::set<std::string> names;
    for (const RawOperand &operand : instruction.operands)
      addNames(operand, names);
    touches.isAny |=
        std::any_of(names.begin(), names.end(), [&](const std::string &name) {
          return registers.count(name);
        });
    return touches;
  }

  const Flow &flow;
  std::set<std::string> registers, shapes;
};

} // namespace

bool mutate::isFencedAlready(const Flow &flow, const Mutant &mutant) {
  if (mutant.kind != "wgmma fence" || mutant.change != "deleted")
    return false;
  const auto &before = flow.remember<std::vector<Touches>>(
      &kTouchesAreKnown, [&] { return TouchAnalysis(flow).solve(); });
  const Touches &here = before[mutant.index];
  if (here.isAny)
    return false;
  TouchAnalysis analysis(flow);
  uint64_t shapes = here.shapes;
  for (size_t index :
       flow.walk(mutant.index, /*isForward=*/true, [&](size_t at) {
         return isProductFence(flow.kernel.instructions[at]);
       }))
    if (isProduct(flow.kernel.instructions[index]))
      shapes |= analysis.shapeOf(flow.kernel.instructions[index]);
  return (shapes & (shapes - 1)) == 0;
}
