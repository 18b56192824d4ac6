//===- Edit.cpp - changes to a kernel's text --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"

#include <algorithm>
#include <sstream>

using namespace moec::ptx;

void mutate::erase(RawKernel &kernel, size_t index) {
  kernel.instructions.erase(kernel.instructions.begin() + long(index));
  for (RawScope &scope : kernel.scopes)
    for (auto &[name, position] : scope.labels)
      if (position > index)
        --position;
}

void mutate::insertBefore(RawKernel &kernel, size_t index,
                          RawInstruction instruction) {
  const RawInstruction &place = kernel.instructions[index];
  instruction.scope = place.scope;
  instruction.line = place.line;
  instruction.location = place.location;
  kernel.instructions.insert(kernel.instructions.begin() + long(index),
                             std::move(instruction));
  for (RawScope &scope : kernel.scopes)
    for (auto &[name, position] : scope.labels)
      if (position > index)
        ++position;
}

RawOperand mutate::makeRegister(RawKernel &kernel, size_t index,
                                const std::string &type) {
  RawScope &scope = kernel.scopes[kernel.instructions[index].scope];
  std::string name = "%mutant" + std::to_string(scope.registers.size());
  scope.registers[name] = type;
  return makeWord(name);
}

RawOperand mutate::makeWord(const std::string &text) {
  RawOperand operand;
  operand.text = text;
  return operand;
}

RawOperand mutate::makeNumber(int64_t value) {
  RawOperand operand;
  operand.kind = RawOperand::Kind::Number;
  operand.bits = uint64_t(value);
  return operand;
}

RawInstruction mutate::makeInstruction(const std::string &opcode,
                                       std::vector<RawOperand> operands) {
  RawInstruction instruction;
  std::istringstream words(opcode);
  for (std::string word; std::getline(words, word, '.');)
    instruction.parts.push_back(word);
  instruction.operands = std::move(operands);
  return instruction;
}

bool mutate::has(const RawInstruction &instruction, const char *word) {
  return std::find(instruction.parts.begin(), instruction.parts.end(), word) !=
         instruction.parts.end();
}

bool mutate::startsWith(const RawInstruction &instruction,
                        const std::string &words) {
  std::string opcode = opcodeOf(instruction);
  return opcode.compare(0, words.size(), words) == 0 &&
         (opcode.size() == words.size() || opcode[words.size()] == '.');
}

std::string mutate::opcodeOf(const RawInstruction &instruction) {
  std::string text;
  for (const std::string &part : instruction.parts)
    text += (text.empty() ? "" : ".") + part;
  return text;
}

void mutate::addNames(const RawOperand &operand, std::set<std::string> &names) {
  if (operand.isWord())
    names.insert(operand.text);
  for (const RawOperand &part : operand.parts)
    addNames(part, names);
}

bool mutate::isProduct(const RawInstruction &instruction) {
  return startsWith(instruction, "wgmma.mma_async");
}

void mutate::addProductRegisters(const RawInstruction &product,
                                 std::set<std::string> &names) {
  for (const RawOperand &operand : product.operands)
    if (operand.kind == RawOperand::Kind::Vector)
      addNames(operand, names);
}
