//===- WgmmaForms.h - operands and flags of a wgmma -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoded operands of a wgmma.mma_async: `count` accumulators, the registers or
// the descriptor of A, the descriptor of B, and the scale-d predicate. `width`
// is the number of bytes of an element. `flags` holds the types of A and B in
// its low bytes, and the bits below.

#ifndef MOEC_VERIFY_PTXSIM_PROGRAM_WGMMAFORMS_H
#define MOEC_VERIFY_PTXSIM_PROGRAM_WGMMAFORMS_H

#include "Program.h"

namespace moec::ptx {

inline constexpr unsigned kWgmmaRows = 64;
inline constexpr uint32_t kWgmmaRegisterA = 1u << 16,
                          kWgmmaTransposedA = 1u << 17,
                          kWgmmaTransposedB = 1u << 18,
                          kWgmmaNegativeA = 1u << 19,
                          kWgmmaNegativeB = 1u << 20;

/// Whether the instruction is a wgmma.mma_async.
bool isAsyncProduct(const Instruction &instruction);

/// Number of operand registers that are in use while the MMA is in flight.
inline size_t getNumWgmmaRegisters(const Instruction &instruction) {
  return instruction.count + (instruction.flags & kWgmmaRegisterA ? 4u : 0u);
}

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_PROGRAM_WGMMAFORMS_H
