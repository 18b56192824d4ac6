//===- IndexMutants.cpp - off-by-one indices and masks ----------*- C++ -*-===//
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

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

/// Bytes that the instruction moves at once; 0 if it accesses no memory with
/// several elements.
static int64_t elementBytes(const RawInstruction &instruction) {
  constexpr int64_t kMatrixRow = 16, kMbarrier = 8, kBulkUnit = 16;
  const std::string &first = instruction.parts.front();
  if (first == "ldmatrix" || first == "stmatrix")
    return kMatrixRow;
  if (first == "mbarrier" || startsWith(instruction, "cp.async.mbarrier"))
    return kMbarrier;
  if (startsWith(instruction, "cp.async.bulk"))
    return kBulkUnit;
  if (first == "cp")
    return instruction.operands.size() > 2
               ? int64_t(instruction.operands[2].bits)
               : 0;
  if (first != "ld" && first != "st" && first != "atom" && first != "red")
    return 0;
  return has(instruction, "param") ? 0 : typeBytes(instruction.parts.back());
}

static std::string signedText(int64_t value) {
  return (value > 0 ? "+" : "") + std::to_string(value);
}

/// Returns the operand, or the element of a vector operand, whose value
/// changes.
using FindOperand = std::function<RawOperand &(RawInstruction &)>;

static void addShifted(size_t index, const std::string &kind,
                       const std::string &what, const char *type,
                       const FindOperand &find, std::vector<Mutant> &mutants) {
  for (int64_t change : {1, -1})
    mutants.push_back(makeMutant(
        Group::Index, kind, what + " " + signedText(change), index,
        [=](RawKernel &mutated) {
          RawOperand operand = find(mutated.instructions[index]);
          RawOperand sum = makeRegister(mutated, index, type);
          find(mutated.instructions[index]) = sum;
          insertBefore(mutated, index,
                       makeInstruction(std::string("add.") +
                                           (type[1] == '6' ? "s64" : "s32"),
                                       {sum, operand, makeNumber(change)}));
        }));
}

static void addAddresses(const RawInstruction &instruction, size_t index,
                         std::vector<Mutant> &mutants) {
  int64_t bytes = elementBytes(instruction);
  for (size_t i = 0; bytes > 0 && i < instruction.operands.size(); ++i) {
    const RawOperand &operand = instruction.operands[i];
    if (operand.kind != RawOperand::Kind::Address)
      continue;
    if (operand.parts.size() > 1) {
      // A tensor map and coordinates.
      for (size_t c = 0; c < operand.parts[1].parts.size(); ++c)
        addShifted(
            index, "coordinate", "coordinate " + std::to_string(c), "b32",
            [=](RawInstruction &mutated) -> RawOperand & {
              return mutated.operands[i].parts[1].parts[c];
            },
            mutants);
      continue;
    }
    for (int64_t change : {bytes, -bytes})
      mutants.push_back(makeMutant(
          Group::Index, "address",
          "operand " + std::to_string(i) + " " + signedText(change) + " bytes",
          index, [=](RawKernel &mutated) {
            RawOperand &address = mutated.instructions[index].operands[i];
            address.offset += change;
            address.parts[0].offset = address.offset;
          }));
  }
  if (!startsWith(instruction, "wgmma.mma_async"))
    return;
  // Descriptors count units of 16 bytes.
  for (size_t i = 1; i < 3 && i < instruction.operands.size(); ++i)
    if (instruction.operands[i].isWord())
      addShifted(
          index, "address", "descriptor " + std::to_string(i - 1), "b64",
          [=](RawInstruction &mutated) -> RawOperand & {
            return mutated.operands[i];
          },
          mutants);
}

//===----------------------------------------------------------------------===//
// Predicates
//===----------------------------------------------------------------------===//

static void addGuards(const RawInstruction &instruction, size_t index,
                      std::vector<Mutant> &mutants) {
  if (instruction.guard.empty())
    return;
  bool isBranch = instruction.parts.front() == "bra";
  const char *kind = isBranch ? "branch" : "predicate";
  mutants.push_back(makeMutant(
      Group::Index, kind, "negated", index, [index](RawKernel &mutated) {
        bool &isNegated = mutated.instructions[index].isGuardNegated;
        isNegated = !isNegated;
      }));
  mutants.push_back(
      makeMutant(Group::Index, kind, isBranch ? "always" : "dropped", index,
                 [index](RawKernel &mutated) {
                   mutated.instructions[index].guard.clear();
                   mutated.instructions[index].isGuardNegated = false;
                 }));
  if (isBranch) {
    Mutant never = makeDeletion(Group::Index, kind, index);
    never.change = "never";
    mutants.push_back(std::move(never));
  }
}

static bool isInteger(const std::string &type) {
  return !type.empty() && (type[0] == 's' || type[0] == 'u' || type[0] == 'b');
}

/// The comparison that differs exactly where both operands are equal.
static std::optional<std::string> neighbour(const std::string &comparison) {
  static const char *const pairs[][2] = {
      {"lt", "le"}, {"gt", "ge"}, {"lo", "ls"}, {"hi", "hs"}};
  for (const auto &pair : pairs) {
    if (comparison == pair[0])
      return pair[1];
    if (comparison == pair[1])
      return pair[0];
  }
  return std::nullopt;
}

/// Whether the operand is the result of arithmetic on floats.
static bool isFloat(const RawKernel &kernel, const RawOperand &operand) {
  return std::any_of(kernel.instructions.begin(), kernel.instructions.end(),
                     [&](const RawInstruction &made) {
                       const std::string &type = made.parts.back();
                       return made.parts.front() != "cvt" &&
                              (type[0] == 'f' ||
                               type.compare(0, 2, "bf") == 0) &&
                              operand.isWord() && !made.operands.empty() &&
                              made.operands[0].text == operand.text;
                     });
}

static void addComparisons(const RawKernel &kernel, size_t index,
                           std::vector<Mutant> &mutants) {
  const RawInstruction &instruction = kernel.instructions[index];
  const std::vector<std::string> &parts = instruction.parts;
  // A comparison of floats, or of their bits, is arithmetic and no mask.
  if (parts.front() == "setp" && parts.size() >= 3 && isInteger(parts.back()) &&
      !isFloat(kernel, instruction.operands[1]))
    if (std::optional<std::string> other = neighbour(parts[1]))
      mutants.push_back(
          makeMutant(Group::Index, "bound", parts[1] + " to " + *other, index,
                     [=](RawKernel &mutated) {
                       mutated.instructions[index].parts[1] = *other;
                     }));
  if (parts.front() == "selp" && isInteger(parts.back()))
    mutants.push_back(makeMutant(Group::Index, "select", "the other one", index,
                                 [index](RawKernel &mutated) {
                                   std::vector<RawOperand> &operands =
                                       mutated.instructions[index].operands;
                                   std::swap(operands[1], operands[2]);
                                 }));
}

//===----------------------------------------------------------------------===//
// Masks and sizes
//===----------------------------------------------------------------------===//

/// Removes the last lane from the member mask.
static void addMemberMask(const RawInstruction &instruction, size_t index,
                          std::vector<Mutant> &mutants) {
  const std::string &first = instruction.parts.front();
  bool isCollective = first == "shfl" || first == "vote" || first == "match" ||
                      first == "redux" || first == "elect" ||
                      startsWith(instruction, "bar.warp.sync");
  if (!isCollective || instruction.operands.empty())
    return;
  size_t last = instruction.operands.size() - 1;
  mutants.push_back(makeMutant(
      Group::Index, "lane mask", "without the last lane", index,
      [=](RawKernel &mutated) {
        RawOperand &mask = mutated.instructions[index].operands[last];
        constexpr uint64_t kMost = 0x7FFFFFFF;
        if (mask.isNumber()) {
          mask.bits &= kMost;
          return;
        }
        RawOperand fewer = makeRegister(mutated, index, "b32");
        RawInstruction made = makeInstruction(
            "and.b32", {fewer, mask, makeNumber(int64_t(kMost))});
        mutated.instructions[index].operands[last] = fewer;
        insertBefore(mutated, index, made);
      }));
  if (first != "shfl")
    return;
  addShifted(
      index, "lane", "source lane", "b32",
      [](RawInstruction &mutated) -> RawOperand & {
        return mutated.operands[2];
      },
      mutants);
  // Butterfly reductions over lane distances 16, 8, 4, 2, 1 give the same with
  // 17 in place of 16.
  if (has(instruction, "bfly"))
    mutants.erase(mutants.end() - 2);
}

/// Makes a `cp.async` with a source size read all the bytes that it writes.
static void addCopySize(const RawInstruction &instruction, size_t index,
                        std::vector<Mutant> &mutants) {
  if (startsWith(instruction, "cp.async.bulk") ||
      startsWith(instruction, "cp.async.mbarrier") ||
      !startsWith(instruction, "cp.async") || instruction.operands.size() < 4 ||
      instruction.operands[3].isNumber())
    return;
  mutants.push_back(makeMutant(Group::Index, "copy size", "all bytes", index,
                               [index](RawKernel &mutated) {
                                 std::vector<RawOperand> &operands =
                                     mutated.instructions[index].operands;
                                 operands[3] = operands[2];
                               }));
}

/// Mutates the toggle of a phase, recognized by its use as a parity.
static void addPhaseToggle(const RawKernel &kernel, size_t index,
                           std::vector<Mutant> &mutants) {
  const RawInstruction &toggle = kernel.instructions[index];
  if (toggle.parts.front() != "xor" || toggle.operands.size() != 3 ||
      !toggle.operands[0].isWord())
    return;
  bool isParity =
      std::any_of(kernel.instructions.begin(), kernel.instructions.end(),
                  [&](const RawInstruction &wait) {
                    return startsWith(wait, "mbarrier") &&
                           has(wait, "parity") &&
                           wait.operands[2].text == toggle.operands[0].text;
                  });
  // A loop may carry the parity in another register.
  for (const RawInstruction &move : kernel.instructions)
    isParity |=
        startsWith(move, "mov.b32") && move.operands[1].isWord() &&
        move.operands[1].text == toggle.operands[0].text &&
        std::any_of(kernel.instructions.begin(), kernel.instructions.end(),
                    [&](const RawInstruction &wait) {
                      return startsWith(wait, "mbarrier") &&
                             has(wait, "parity") &&
                             wait.operands[2].text == move.operands[0].text;
                    });
  if (isParity)
    mutants.push_back(makeMutant(Group::Sync, "phase", "not flipped", index,
                                 [index](RawKernel &mutated) {
                                   RawInstruction &kept =
                                       mutated.instructions[index];
                                   kept.parts = {"mov", "b32"};
                                   kept.operands.pop_back();
                                 }));
}

void mutate::addIndexMutants(const RawKernel &kernel, size_t index,
                             std::vector<Mutant> &mutants) {
  const RawInstruction &instruction = kernel.instructions[index];
  addAddresses(instruction, index, mutants);
  addGuards(instruction, index, mutants);
  addComparisons(kernel, index, mutants);
  addMemberMask(instruction, index, mutants);
  addCopySize(instruction, index, mutants);
  addPhaseToggle(kernel, index, mutants);
}
