//===- Arithmetic.h - what integer and float forms share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// `add`, `mul` and the like are integer or float by their type alone: the float
// forms own those words and ask here.

#ifndef MOEC_LIB_PTX_SIM_FORMS_ARITHMETIC_H
#define MOEC_LIB_PTX_SIM_FORMS_ARITHMETIC_H

#include "Decoder.h"

namespace moec::ptx {

// Null for types that are no integers.
Handler pickIntegerSum(const std::string &type, bool subtracts);
Handler pickIntegerExtremum(const std::string &type, bool isMax);
Handler pickIntegerSign(const std::string &type, bool isAbs);
Handler pickIntegerDivision(const std::string &type);
void decodeIntegerMul(Decoder &decoder, bool adds);
void decodePredicateMove(Decoder &decoder);

/// A result and `sources` of one type; no handler, no form.
void decodeSame(Decoder &decoder, const std::string &type, size_t sources,
                Handler handler);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_FORMS_ARITHMETIC_H
