//===- Product.h - matrix products by fragments -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Matrix products in the accumulator layout, 32 lanes at a time. Lane l of a
// warp holds row l / 4 and columns 2 (l % 4) and 2 (l % 4) + 1 of each block of
// 8 rows by 8 columns.

#ifndef MOEC_VERIFY_PTXSIM_NUMBERS_PRODUCT_H
#define MOEC_VERIFY_PTXSIM_NUMBERS_PRODUCT_H

#include "Floats.h"

namespace moec::ptx {

/// Type of an element of a matrix operand.
enum class MatrixType : uint8_t { Half, Bfloat, E4M3, E5M2, Tf32, Int8 };

/// Bytes of an element, and its `type`; 0 for unknown names.
unsigned parseMatrixType(const std::string &name, MatrixType &type);
/// The exact value of `bits`.
float matrixElement(MatrixType type, uint32_t bits);

/// The values in a register of 32 lanes, with elements of `bytes` bytes:
/// element i of a lane goes to `elements[i][lane]`.
void matrixElements(MatrixType type, unsigned bytes, const uint32_t *bits,
                    float (*elements)[kWarpLanes]);

/// Adds to each of two or four registers the sum over k of `rows[32 k + lane] *
/// columns[i][4 k + lane % 4]`, in the order of k, each product and sum rounded
/// to f32.
void addProducts(float *const *registers, unsigned numRegisters,
                 const float *rows, const float *const *columns,
                 unsigned depth);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_NUMBERS_PRODUCT_H
