//===- Sm90Units.h - fragments of weights in registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H

#include "../../AsyncEmitter.h"
#include "moec/Dialect/Moe/Fragments.h"

#include <memory>

namespace moec {

/// A thread's share of a unit before the last step, i32: words of small
/// numbers, a register of a fragment each, of all products one after the other;
/// and, as the decoder has them, of two scales each, of both rows of one group
/// after the other, what scales are greater by, and what is added in the end,
/// or nothing.
struct OpenUnit {
  llvm::SmallVector<mlir::Value> numbers, scales, rests, addends;

  /// Ahead of this point, whatever LLVM would like.
  void tie(mlir::ImplicitLocOpBuilder &b);
};

/// Makes fragments of a thread's share of units, in two steps: of which the
/// last one, an operation per register, is all that has to wait for the
/// products before.
class UnitDecoder {
public:
  virtual ~UnitDecoder() = default;

  /// Takes apart vectors of four i32, and one i32 or a vector of several.
  virtual OpenUnit open(llvm::ArrayRef<mlir::Value> codes,
                        mlir::Value scales) = 0;
  /// The fragments of all products.
  virtual llvm::SmallVector<mlir::Value> close(const OpenUnit &unit) = 0;
};

/// Of codes that become e4m3.
std::unique_ptr<UnitDecoder> makeByteDecoder(AsyncEmitter &emitter,
                                             const moe::Fragments &format);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90UNITS_H
