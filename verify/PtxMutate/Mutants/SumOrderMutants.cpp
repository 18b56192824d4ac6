//===- SumOrderMutants.cpp - products that are added in turn ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"
#include "Mutants.h"

#include <algorithm>
#include <optional>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

using Names = std::set<std::string>;

/// Operands of a product: the sum, the two factors, and the addend, which is
/// the sum itself for a warpgroup's MMA.
static constexpr size_t kSum = 0, kFirstFactor = 1, kSecondFactor = 2,
                        kAddend = 3;

static bool isSum(const RawInstruction &instruction) {
  return isProduct(instruction) || startsWith(instruction, "mma.sync") ||
         startsWith(instruction, "fma.rn.f32");
}

static Names getNames(const RawInstruction &product,
                      std::initializer_list<size_t> operands) {
  Names names;
  for (size_t operand : operands)
    addNames(product.operands[operand], names);
  return names;
}

static Names getAddend(const RawInstruction &product) {
  return getNames(product, {isProduct(product) ? kSum : kAddend});
}

static bool haveCommon(const Names &some, const Names &others) {
  return std::any_of(some.begin(), some.end(), [&](const std::string &name) {
    return others.count(name) != 0;
  });
}

static bool hasLabel(const RawKernel &kernel, size_t index) {
  return std::any_of(
      kernel.scopes.begin(), kernel.scopes.end(), [&](const RawScope &scope) {
        return std::any_of(
            scope.labels.begin(), scope.labels.end(),
            [&](const auto &label) { return label.second == index; });
      });
}

/// Whether both of a warpgroup's MMAs add, or both do not: the predicate is set
/// just ahead of each.
static bool haveSamePredicate(const RawKernel &kernel, size_t first,
                              size_t second) {
  if (!isProduct(kernel.instructions[second]))
    return true;
  auto getTexts = [&](size_t product) {
    std::vector<std::string> texts;
    if (product == 0 || kernel.instructions[product - 1].parts[0] != "setp")
      return texts;
    const RawInstruction &setter = kernel.instructions[product - 1];
    texts = setter.parts;
    for (size_t operand = 1; operand < setter.operands.size(); ++operand)
      texts.push_back(setter.operands[operand].text + ":" +
                      std::to_string(setter.operands[operand].bits));
    return texts;
  };
  return getTexts(first) == getTexts(second);
}

/// The product ahead of that at `index` which is added to the same sum, if it
/// can as well be added behind it.
static std::optional<size_t> findEarlier(const RawKernel &kernel,
                                         size_t index) {
  const RawInstruction &later = kernel.instructions[index];
  Names sum = getAddend(later);
  // A sum that begins with a constant has no product ahead.
  if (sum.empty())
    return std::nullopt;
  Names written, read;
  for (size_t i = index; i-- > 0 && !hasLabel(kernel, i + 1);) {
    const RawInstruction &found = kernel.instructions[i];
    if (isSum(found) && getNames(found, {kSum}) == sum) {
      bool canMove =
          opcodeOf(found) == opcodeOf(later) && !haveCommon(read, sum) &&
          !haveCommon(written,
                      getNames(found, {kFirstFactor, kSecondFactor})) &&
          // The first two products of a sum from 0 have one sum in any order.
          !getAddend(found).empty() && haveSamePredicate(kernel, i, index);
      return canMove ? std::optional<size_t>(i) : std::nullopt;
    }
    const std::string &name = found.parts.front();
    bool isOrdered = name == "wgmma" && !isProduct(found);
    if (name == "bra" || name == "ret" || name == "bar" || isOrdered)
      return std::nullopt;
    for (size_t operand = 0; operand < found.operands.size(); ++operand)
      addNames(found.operands[operand], operand == 0 ? written : read);
    if (haveCommon(written, sum))
      return std::nullopt;
  }
  return std::nullopt;
}

static void addMutant(const RawKernel &kernel, size_t index,
                      std::vector<Mutant> &mutants) {
  const RawInstruction &later = kernel.instructions[index];
  if (!isSum(later) || !later.guard.empty())
    return;
  std::optional<size_t> earlier = findEarlier(kernel, index);
  if (!earlier || !kernel.instructions[*earlier].guard.empty())
    return;
  mutants.push_back(
      makeMutant(Group::Order, "sum order", "added ahead of the product before",
                 index, [index, earlier = *earlier](RawKernel &mutated) {
                   RawInstruction first = mutated.instructions[earlier];
                   RawInstruction &second = mutated.instructions[index];
                   for (size_t factor : {kFirstFactor, kSecondFactor})
                     std::swap(first.operands[factor], second.operands[factor]);
                   insertBefore(mutated, index, std::move(first));
                   erase(mutated, earlier);
                 }));
}

std::vector<Mutant> mutate::listSumOrderMutants(const RawKernel &kernel) {
  std::vector<Mutant> mutants;
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    addMutant(kernel, i, mutants);
  for (Mutant &mutant : mutants)
    mutant.line = kernel.instructions[mutant.index].line;
  return mutants;
}
