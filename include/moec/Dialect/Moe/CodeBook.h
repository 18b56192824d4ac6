//===- CodeBook.h - values of 4-bit code books ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Used by the compiler and the interpreter; the references have their own
// tables.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_CODEBOOK_H
#define MOEC_DIALECT_MOE_CODEBOOK_H

#include "mlir/IR/Types.h"

#include <array>
#include <optional>

namespace moec::moe {

/// The value of each 4-bit index.
using CodeBook = std::array<float, 16>;

/// The code book of `!moe.nf4` in f32: appendix E of QLoRA (Dettmers et al.,
/// 2023).
inline constexpr CodeBook kNF4 = {-1.0F,
                                  -0.6961928009986877F,
                                  -0.5250730514526367F,
                                  -0.39491748809814453F,
                                  -0.28444138169288635F,
                                  -0.18477343022823334F,
                                  -0.09105003625154495F,
                                  0.0F,
                                  0.07958029955625534F,
                                  0.16093020141124725F,
                                  0.24611230194568634F,
                                  0.33791524171829224F,
                                  0.44070982933044434F,
                                  0.5626170039176941F,
                                  0.7229568362236023F,
                                  1.0F};

/// The code book of `!moe.nf4` or `!moe.code_book`; nothing for other types.
std::optional<CodeBook> getCodeBook(mlir::Type storage);
bool isCodeBook(mlir::Type storage);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_CODEBOOK_H
