//===- ConvertElements.h - exact conversion of elements ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exact conversion to the layer's types. Checkpoints keep some tensors in
// another type than the layer computes in: a router in f32 beside experts in
// bf16, a table of ids in 64 bits.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_CONVERTELEMENTS_H
#define MOEC_LIB_TOOLS_RUN_CONVERTELEMENTS_H

#include "moert/DType.h"

#include <string>

namespace moec {

/// Whether some values of `from` are values of `to`: f32, bf16 and f16 among
/// each other, integers of 32 and 64 bits, and u8 that are the bytes of i8 or
/// f8e8m0.
bool canConvert(moert::DType from, moert::DType to);

/// Converts one element; also fp8 elements, whose scales the caller applies.
/// Returns false if `to` cannot represent its value.
bool convertElement(const uint8_t *source, moert::DType from, uint8_t *result,
                    moert::DType to);

/// Rounds one element to nearest, ties to even. Returns false if both types are
/// not floats, or the value is beyond the range of `to`.
bool roundElement(const uint8_t *source, moert::DType from, uint8_t *result,
                  moert::DType to);

/// Rounds one element of floats; with `remainder` converts what the rounding
/// loses, rounded too. Returns false if the value is beyond the range of `to`.
bool convertSplit(const uint8_t *source, moert::DType from, uint8_t *result,
                  moert::DType to, bool remainder);

/// The value of an element, for messages.
std::string showElement(const uint8_t *source, moert::DType dtype);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_CONVERTELEMENTS_H
