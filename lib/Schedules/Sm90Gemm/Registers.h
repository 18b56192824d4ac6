//===- Registers.h - registers of a gemm of sm90.gemm -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_REGISTERS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_REGISTERS_H

#include "TileShape.h"
#include "moec/Schedules/PtxasLimits.h"

namespace moec::sm90 {

/// How the warpgroups of a CTA divide the registers of an SM. All threads start
/// with equally many; then the producer releases some to the consumers, by
/// setmaxnreg.
class RegisterBudget {
public:
  explicit RegisterBudget(const ptxas::Sm90Shape &shape)
      : shape(shape), producer(ptxas::getCopyingRegisters(shape)),
        accumulators(shape.sums) {}
  RegisterBudget(const GemmProblem &problem, const TileShape &tile);

  /// Keeps registers for the producer of a joined gemm too.
  void shareWith(const RegisterBudget &other);

  /// Accumulators of a consumer thread, and how many fit in its registers.
  int64_t getAccumulators() const { return shape.sums; }
  int64_t getMaxAccumulators() const { return ptxas::getMaxSums(shape); }
  bool fits() const { return getAccumulators() <= getMaxAccumulators(); }

  /// Whether a CTA needs less than half of an SM's registers, so that it can
  /// start beside CTAs of the launch before; only with low tiles.
  bool hasReducedRegisters() const {
    return !shape.fromRegisters && shape.rows <= ptxas::kHalfShareRows &&
           accumulators <= (shape.splitsK ? ptxas::kHalfShareShares
                                          : ptxas::kHalfShareSums);
  }
  /// Registers of a thread at the start.
  int64_t getRegisters() const;
  int64_t getProducerRegisters() const {
    if (!hasReducedRegisters())
      return producer;
    return shape.quantizesRows ? ptxas::kHalfShareQuantizing
                               : ptxas::kHalfShareCopying;
  }
  int64_t getConsumerRegisters() const;

private:
  /// The properties that this gemm's register use depends on; whether one of
  /// the two quantizes its rows.
  ptxas::Sm90Shape shape;
  /// The largest needs of this gemm and of a joined one.
  int64_t producer, accumulators;
};

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_REGISTERS_H
