//===- Product.h - matrix products in the layout of fragments ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Registers of an accumulator hold, for lane l of a warp, row l / 4 and columns
// 2 (l % 4) and 2 (l % 4) + 1 of a piece of 8 rows by 8 columns. Products are
// formed in that layout, 32 lanes at a time.

#ifndef MOEC_LIB_PTX_SIM_NUMBERS_PRODUCT_H
#define MOEC_LIB_PTX_SIM_NUMBERS_PRODUCT_H

#include "Floats.h"

namespace moec::ptx {

/// An element of a matrix operand.
enum class MatrixType : uint8_t { Half, Bfloat, E4M3, E5M2, Tf32, Int8 };

/// Bytes; 0 for other names. `type` is set for those that are known.
unsigned parseMatrixType(const std::string &name, MatrixType &type);
/// The number behind `bits`, exactly.
float matrixElement(MatrixType type, uint32_t bits);

/// The numbers in a register of 32 lanes, each of `bytes` bytes: element i of a
/// lane goes to `elements[i][lane]`.
void matrixElements(MatrixType type, unsigned bytes, const uint32_t *bits,
                    float (*elements)[kWarpLanes]);

/// Adds to `numRegisters` registers, two or four, the sum over k of
/// `rows[32 k + lane] * columns[i][4 k + lane % 4]`, each product and sum
/// rounded to f32, in the order of k.
void addProducts(float *const *registers, unsigned numRegisters,
                 const float *rows, const float *const *columns,
                 unsigned depth);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_NUMBERS_PRODUCT_H
