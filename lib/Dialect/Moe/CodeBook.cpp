//===- CodeBook.cpp - numbers of values without a formula -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/CodeBook.h"

#include "moec/Dialect/Moe/Moe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace moec::moe;

LogicalResult CodeBookType::verify(function_ref<InFlightDiagnostic()> emitError,
                                   DenseF32ArrayAttr numbers) {
  constexpr size_t count = std::tuple_size_v<CodeBook>;
  if (size_t(numbers.size()) != count)
    return emitError() << "a code book has " << numbers.size()
                       << " entries; give " << count
                       << ", one for each 4-bit index";
  constexpr float largestF16 = 65504;
  for (auto [code, number] : llvm::enumerate(numbers.asArrayRef()))
    if (!(std::fabs(number) <= largestF16))
      return emitError()
             << "entry " << code
             << " of a code book is not finite or exceeds 65504, the largest "
                "f16; move a common factor of all entries into the scales";
  return success();
}

std::optional<CodeBook> moec::moe::getCodeBook(Type storage) {
  if (isa<NF4Type>(storage))
    return kNF4;
  auto own = dyn_cast<CodeBookType>(storage);
  if (!own)
    return std::nullopt;
  CodeBook numbers;
  llvm::copy(own.getNumbers().asArrayRef(), numbers.begin());
  return numbers;
}

bool moec::moe::isCodeBook(Type storage) {
  return isa<NF4Type, CodeBookType>(storage);
}
