//===- Edit.h - changes to a kernel's text ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_MUTANTS_EDIT_H
#define MOEC_VERIFY_PTXMUTATE_MUTANTS_EDIT_H

#include "PtxSim/Program/PtxText.h"

#include <set>

namespace moec::ptx::mutate {

/// Removes an instruction; its labels move to the next one.
void erase(RawKernel &kernel, size_t index);

/// Inserts `instruction` before the one at `index`, whose labels, scope, line
/// and location it gets.
void insertBefore(RawKernel &kernel, size_t index, RawInstruction instruction);

/// A new register, in the scope of the instruction at `index`.
RawOperand makeRegister(RawKernel &kernel, size_t index,
                        const std::string &type);

RawOperand makeWord(const std::string &text);
RawOperand makeNumber(int64_t value);

/// `opcode` with dots: "add.s32".
RawInstruction makeInstruction(const std::string &opcode,
                               std::vector<RawOperand> operands);

/// Whether the opcode has this word.
bool has(const RawInstruction &instruction, const char *word);
/// Whether the opcode begins with these words, given with dots.
bool startsWith(const RawInstruction &instruction, const std::string &words);
std::string opcodeOf(const RawInstruction &instruction);
/// Adds the names of an operand and its parts: registers and variables.
void addNames(const RawOperand &operand, std::set<std::string> &names);

/// Whether the instruction starts a warpgroup's MMA.
bool isProduct(const RawInstruction &instruction);
/// Adds the registers of an MMA: accumulators, and A if it is in registers.
void addProductRegisters(const RawInstruction &product,
                         std::set<std::string> &names);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_MUTANTS_EDIT_H
