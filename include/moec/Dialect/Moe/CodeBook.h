//===- CodeBook.h - numbers of codes without a formula ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compilers and the interpreter look here; the references have tables of their
// own.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_CODEBOOK_H
#define MOEC_DIALECT_MOE_CODEBOOK_H

#include "mlir/IR/Types.h"

#include <array>
#include <optional>

namespace moec::moe {

/// What each code of 4 bits stands for.
using CodeBook = std::array<float, 16>;

/// What the codes of `!moe.nf4` stand for: appendix E of QLoRA (Dettmers et
/// al., 2023), as f32 has them.
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

/// That of `!moe.nf4` and `!moe.code_book`; no other storage has one.
std::optional<CodeBook> getCodeBook(mlir::Type storage);
bool isCodeBook(mlir::Type storage);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_CODEBOOK_H
