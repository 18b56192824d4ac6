//===- Flow.cpp - control and data flow of a kernel -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Flow.h"

#include "../Mutants/Edit.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

static size_t findLabel(const RawKernel &kernel, unsigned scope,
                        const std::string &label) {
  for (int at = int(scope); at >= 0; at = kernel.scopes[size_t(at)].parent) {
    const RawScope &names = kernel.scopes[size_t(at)];
    auto found = names.labels.find(label);
    if (found != names.labels.end())
      return found->second;
  }
  return kernel.instructions.size();
}

static void addRegisters(const RawOperand &operand,
                         std::vector<std::string> &names) {
  if (operand.kind == RawOperand::Kind::Vector)
    for (const RawOperand &part : operand.parts)
      addRegisters(part, names);
  else if (operand.isWord()) {
    names.push_back(operand.text);
    if (!operand.second.empty())
      names.push_back(operand.second);
  }
}

std::vector<std::string> mutate::resultsOf(const RawInstruction &instruction) {
  static const char *const silent[] = {"st",   "red",       "bra",      "bar",
                                       "ret",  "cp",        "prefetch", "fence",
                                       "exit", "setmaxnreg"};
  std::vector<std::string> names;
  const std::string &first = instruction.parts.front();
  bool isSilent = std::find(std::begin(silent), std::end(silent), first) !=
                  std::end(silent);
  if (!isSilent && !instruction.operands.empty())
    addRegisters(instruction.operands[0], names);
  return names;
}

bool mutate::isPrivate(const RawInstruction &instruction) {
  static const char *const families[] = {
      "mov",  "cvt", "cvta", "add",  "sub",  "mul",      "mad",
      "fma",  "div", "rem",  "neg",  "abs",  "min",      "max",
      "and",  "or",  "xor",  "not",  "shl",  "shr",      "bfe",
      "bfi",  "shf", "lop3", "prmt", "selp", "setp",     "slct",
      "popc", "clz", "ex2",  "rcp",  "lg2",  "sqrt",     "rsqrt",
      "tanh", "bra", "ret",  "exit", "ld",   "copysign", "prefetch"};
  return std::find(std::begin(families), std::end(families),
                   instruction.parts.front()) != std::end(families);
}

Flow::Flow(const RawKernel &kernel) : kernel(kernel) {
  size_t count = kernel.instructions.size();
  next.resize(count);
  previous.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const RawInstruction &instruction = kernel.instructions[i];
    const std::string &first = instruction.parts.front();
    bool isGuarded = !instruction.guard.empty();
    auto add = [&](size_t to) {
      if (to >= count)
        return;
      next[i].push_back(to);
      previous[to].push_back(i);
    };
    if (first == "bra")
      add(findLabel(kernel, instruction.scope, instruction.operands[0].text));
    bool isLast =
        first == "bra" || first == "ret" || first == "exit" || first == "trap";
    if (!isLast || isGuarded)
      add(i + 1);
    for (const std::string &name : resultsOf(instruction))
      writers[name].push_back(i);
  }
}

std::set<size_t> Flow::walk(size_t index, bool isForward,
                            const std::function<bool(size_t)> &stops) const {
  const auto &edges = isForward ? next : previous;
  std::set<size_t> met;
  std::vector<size_t> open = edges[index];
  while (!open.empty()) {
    size_t at = open.back();
    open.pop_back();
    if (stops(at) || !met.insert(at).second)
      continue;
    open.insert(open.end(), edges[at].begin(), edges[at].end());
  }
  return met;
}

bool Flow::isReachedByAll(size_t index) const {
  auto isHere = [&](size_t at) { return at == index; };
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    const RawInstruction &branch = kernel.instructions[i];
    if (next[i].size() < 2)
      continue;
    RawOperand guard;
    guard.text = branch.guard;
    std::optional<Affine> how = affine(guard, Scope::Cta);
    if (how && how->stride == 0)
      continue;
    // Does one path lead to the end past this instruction, and another to it?
    std::set<size_t> without = walk(i, true, isHere);
    bool endsWithout = std::any_of(without.begin(), without.end(),
                                   [&](size_t at) { return next[at].empty(); });
    bool comesHere =
        std::any_of(without.begin(), without.end(), [&](size_t at) {
          return std::find(next[at].begin(), next[at].end(), index) !=
                 next[at].end();
        });
    comesHere |=
        std::find(next[i].begin(), next[i].end(), index) != next[i].end();
    if (endsWithout && comesHere)
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

std::optional<size_t> Flow::definition(const std::string &name) const {
  auto found = writers.find(name);
  if (found == writers.end() || found->second.size() != 1 ||
      !kernel.instructions[found->second[0]].guard.empty())
    return std::nullopt;
  return found->second[0];
}

std::optional<Affine> Flow::affine(const RawOperand &operand,
                                   Scope scope) const {
  constexpr unsigned kDepth = 64;
  Known known;
  return find(operand, scope, kDepth, known);
}

/// `known` caches results, because sums of sums share operands.
std::optional<Affine> Flow::find(const RawOperand &operand, Scope scope,
                                 unsigned depth, Known &known) const {
  if (!operand.isWord())
    return compute(operand, scope, depth, known);
  auto found = known.find(operand.text);
  if (found != known.end())
    return found->second;
  std::optional<Affine> result = compute(operand, scope, depth, known);
  known[operand.text] = result;
  return result;
}

std::optional<Affine> Flow::compute(const RawOperand &operand, Scope scope,
                                    unsigned depth, Known &known) const {
  if (operand.isNumber())
    return Affine{0};
  if (!operand.isWord() || depth == 0)
    return std::nullopt;
  const std::string &name = operand.text;
  if (name == "%tid.x" || (name == "%laneid" && scope == Scope::Warp))
    return Affine{1};
  if (name.compare(0, 7, "%ctaid.") == 0 ||
      name.compare(0, 8, "%nctaid.") == 0 || name.compare(0, 6, "%ntid.") == 0)
    return Affine{0};
  // A symbol is the same for all threads.
  if (!name.empty() && name[0] != '%')
    return Affine{0};
  std::optional<size_t> at = definition(name);
  if (!at)
    return std::nullopt;
  const RawInstruction &made = kernel.instructions[*at];
  const std::string &first = made.parts.front();
  auto value = [&](size_t index) {
    return find(made.operands[index], scope, depth - 1, known);
  };
  auto number = [&](size_t index) {
    return int64_t(made.operands[index].bits);
  };
  if (first == "ld" && has(made, "param"))
    return Affine{0};
  if (first == "redux" && scope == Scope::Warp)
    return Affine{0};
  if (first == "shfl" && has(made, "idx") && scope == Scope::Warp &&
      made.operands[2].isNumber())
    return Affine{0};
  if (first == "ld" || first == "redux" || first == "atom" || first == "shfl" ||
      first == "match" || first == "mbarrier" || first == "ldmatrix" ||
      first == "elect")
    return std::nullopt;
  // Equal operands give an equal result.
  bool isEqual = true;
  for (size_t i = 1; i < made.operands.size(); ++i) {
    std::optional<Affine> part = value(i);
    isEqual &= part && part->stride == 0;
  }
  if (isEqual)
    return Affine{0};
  if (first == "mov" || first == "cvt" || first == "cvta")
    return made.operands.size() == 2 ? value(1) : std::nullopt;
  if (first == "add" || first == "sub") {
    std::optional<Affine> left = value(1), right = value(2);
    if (!left || !right)
      return std::nullopt;
    return Affine{first == "add" ? left->stride + right->stride
                                 : left->stride - right->stride};
  }
  constexpr int64_t kWarp = 32;
  bool isThread = made.operands.size() > 1 && value(1) && value(1)->stride == 1;
  if (made.operands.size() != 3 || !made.operands[2].isNumber())
    return std::nullopt;
  constexpr int64_t kWarpBits = 5;
  // First thread numbers of warps, and of groups of warps, are multiples of 32.
  if (first == "and" && number(2) == kWarp - 1 && isThread &&
      scope == Scope::Warp)
    return Affine{1};
  if (first == "shr" && number(2) >= kWarpBits && isThread &&
      scope == Scope::Warp) {
    std::optional<size_t> source = definition(made.operands[1].text);
    bool isTid = source && kernel.instructions[*source].operands[1].text ==
                               std::string("%tid.x");
    return isTid ? std::optional<Affine>(Affine{0}) : std::nullopt;
  }
  if (first == "mul" || first == "shl") {
    std::optional<Affine> factor = value(1);
    if (!factor)
      return std::nullopt;
    return Affine{factor->stride *
                  (first == "mul" ? number(2) : int64_t(1) << number(2))};
  }
  return std::nullopt;
}

std::string Flow::variable(const RawOperand &operand) const {
  if (!operand.isWord())
    return "";
  const std::string &name = operand.text;
  if (!name.empty() && name[0] != '%')
    return name;
  std::optional<size_t> at = definition(name);
  if (!at)
    return "";
  const RawInstruction &made = kernel.instructions[*at];
  const std::string &first = made.parts.front();
  if (first == "mov" && made.operands.size() == 2)
    return variable(made.operands[1]);
  if (first != "add" || made.operands.size() != 3)
    return "";
  std::string left = variable(made.operands[1]);
  return left.empty() ? variable(made.operands[2]) : left;
}

std::optional<OneThread> Flow::oneThread(size_t index, Scope scope) const {
  // Walks back to the branch that begins the straight line.
  size_t at = index;
  std::string guard = kernel.instructions[at].guard;
  bool isNegated = kernel.instructions[at].isGuardNegated;
  while (guard.empty()) {
    if (previous[at].size() != 1)
      return std::nullopt;
    size_t before = previous[at][0];
    const RawInstruction &branch = kernel.instructions[before];
    if (next[before].size() == 2) {
      guard = branch.guard;
      // After a branch that is not taken, its guard does not hold.
      isNegated = (before + 1 == at) != branch.isGuardNegated;
    }
    at = before;
  }
  std::optional<size_t> made = definition(guard);
  if (!made)
    return std::nullopt;
  const RawInstruction &compare = kernel.instructions[*made];
  if (compare.parts[0] != "setp" || compare.operands.size() != 3 ||
      compare.parts[1] != (isNegated ? "ne" : "eq") ||
      !compare.operands[2].isNumber())
    return std::nullopt;
  std::optional<Affine> thread = affine(compare.operands[1], scope);
  if (!thread || (thread->stride != 1 && thread->stride != -1))
    return std::nullopt;
  return OneThread{compare.operands[1].text, compare.operands[2].bits};
}
