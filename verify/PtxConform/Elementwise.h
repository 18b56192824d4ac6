//===- Elementwise.h - forms with one element per thread --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXCONFORM_ELEMENTWISE_H
#define MOEC_VERIFY_PTXCONFORM_ELEMENTWISE_H

#include "moec/PtxConform/Form.h"
#include "moec/PtxConform/Random.h"

namespace moec::conform {

/// Distribution of an operand's values.
enum class Draw : uint8_t {
  /// Random bits, small numbers, limits, powers of two and their neighbours.
  Integers,
  /// From 0 past the width.
  Shifts,
  /// From 0 to 255, most of them within 64 bits.
  Places,
  /// 0 or 1.
  Bools,
  /// Not 0.
  Divisors,
  /// Random bits of every exponent, NaNs, infinities, subnormals, signed zeros,
  /// limits; numbers around 1.
  Floats,
  /// Halfway between two numbers of a narrower format, and just beside that.
  Ties,
  /// Whole and half numbers, limits of integer types and their neighbours.
  NearIntegers,
  /// Close to minus the product of the two preceding operands.
  Cancelling,
  /// Between -160 and 160, and Floats.
  Exponents,
  /// The index of the element, so that 65536 elements cover all 16-bit
  /// patterns.
  Counting,
  /// Equal nonzero bits in all lanes of a warp.
  WarpMasks,
  /// One of a few values, so that lanes agree with one another.
  Few,
};

/// One operand. Inputs are loaded into %a0, %a1, ... before the body, and
/// outputs stored from %d0, %d1, ... after it. Operands of several registers
/// use %a0_0, %a0_1, ...
struct Operand {
  unsigned width = 32;
  unsigned count = 1;
  Format format = Format::None;
  Draw draw = Draw::Integers;
  /// A predicate, which memory holds as a 32-bit 0 or 1.
  bool isPredicate = false;

  size_t bytes() const { return width / 8 * count; }
  Operand as(Draw other) const {
    Operand copy = *this;
    copy.draw = other;
    return copy;
  }
  Operand times(unsigned registers) const {
    Operand copy = *this;
    copy.count = registers;
    return copy;
  }
};

inline const Operand B16{16}, B32{32}, B64{64};
inline const Operand Pred{32, 1, Format::None, Draw::Bools, true};
inline const Operand F32{32, 1, Format::F32, Draw::Floats};
inline const Operand F16{16, 1, Format::F16, Draw::Floats};
inline const Operand BF16{16, 1, Format::BF16, Draw::Floats};
inline const Operand F16X2{32, 1, Format::F16, Draw::Floats};
inline const Operand BF16X2{32, 1, Format::BF16, Draw::Floats};

/// Builds the forms of one family.
class Family {
public:
  Family(std::string name, std::vector<Form> &forms)
      : name(std::move(name)), forms(forms) {}

  /// Sets CTAs and threads of later forms.
  Family &launch(int64_t newGrid, int64_t newBlock) {
    grid = newGrid;
    block = newBlock;
    return *this;
  }

  /// Sets the shared memory of later forms: %smem is its start, %sh the start
  /// of the thread's own `perThread` bytes after the first `perCta`.
  Family &shared(unsigned newPerThread, unsigned newPerCta = 0) {
    perThread = newPerThread;
    perCta = newPerCta;
    return *this;
  }

  /// Adds one instruction over %d0, %a0, %a1: outputs first, in order.
  Form &op(const std::string &instruction, const std::vector<Operand> &outputs,
           const std::vector<Operand> &inputs, const std::string &note = "");

  /// Adds any body. Scratch registers: %p0 to %p7, %h0 to %h15 (16 bits), %t0
  /// to %t31 (32), %u0 to %u15 (64). Inputs: %thread, %cta, %lane, %gid (within
  /// the grid), and the element's addresses %in0, %out0, ...
  Form &body(const std::string &rowName, const std::string &text,
             const std::vector<Operand> &outputs,
             const std::vector<Operand> &inputs);

private:
  const std::string name;
  std::vector<Form> &forms;
  int64_t grid = 32, block = 128;
  unsigned perThread = 0, perCta = 0;
};

/// The text before the entry of every module.
std::string moduleHead(int64_t shared);

/// One value of `operand`'s registers. `before` holds the registers drawn for
/// the element so far.
uint64_t drawValue(const Operand &operand, Random &random, uint64_t element,
                   uint64_t warpSeed, const std::vector<uint64_t> &before);

} // namespace moec::conform

#endif // MOEC_VERIFY_PTXCONFORM_ELEMENTWISE_H
