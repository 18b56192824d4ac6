//===- Arithmetic.h - shared by integer and float forms ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Integer handlers of `add`, `mul` and the like, whose type alone tells integer
// from float. The float forms register these opcodes and fall back to these
// functions.

#ifndef MOEC_VERIFY_PTXSIM_FORMS_ARITHMETIC_H
#define MOEC_VERIFY_PTXSIM_FORMS_ARITHMETIC_H

#include "Decoder.h"

namespace moec::ptx {

// Handlers of integer types; null for other types.
Handler pickIntegerSum(const std::string &type, bool subtracts);
Handler pickIntegerExtremum(const std::string &type, bool isMax);
Handler pickIntegerSign(const std::string &type, bool isAbs);
Handler pickIntegerDivision(const std::string &type);
void decodeIntegerMul(Decoder &decoder, bool adds);
void decodePredicateMove(Decoder &decoder);

/// Decodes a result and `sources` of one type; a null handler leaves the form
/// unknown.
void decodeSame(Decoder &decoder, const std::string &type, size_t sources,
                Handler handler);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_ARITHMETIC_H
