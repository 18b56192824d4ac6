//===- OperandChecker.cpp - shapes against a formula ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/OperandChecker.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace moec::moe {

int64_t getDim(Value value, unsigned index) {
  return cast<ShapedType>(value.getType()).getDimSize(index);
}

Type getElementType(Value value) {
  return cast<ShapedType>(value.getType()).getElementType();
}

static bool matches(int64_t size, const Dim &dim) {
  return dim.size == Dim::kAny ? !ShapedType::isDynamic(size) && size > 0
                               : size == dim.size;
}

static std::string show(ArrayRef<int64_t> sizes) {
  if (sizes.empty())
    return "a scalar";
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(
      sizes, os,
      [&](int64_t size) {
        if (ShapedType::isDynamic(size))
          os << '?';
        else if (size == Dim::kAny)
          os << '*';
        else
          os << size;
      },
      "x");
  return text;
}

LogicalResult OperandChecker::checkShape(StringRef name, Value value,
                                         ArrayRef<Dim> dims,
                                         bool mayHaveGaps) const {
  if (!value)
    return success();
  auto type = cast<ShapedType>(value.getType());
  if (auto memref = dyn_cast<MemRefType>(value.getType()))
    if (!memref.getLayout().isIdentity() &&
        !(mayHaveGaps && isa<StridedLayoutAttr>(memref.getLayout())))
      return error("'" + name +
                   "' must be row-major without gaps; remove the layout of ")
             << memref;
  ArrayRef<int64_t> shape = type.getShape();
  if (shape.size() == dims.size() &&
      llvm::all_of(llvm::zip(shape, dims), [](auto pair) {
        return matches(std::get<0>(pair), std::get<1>(pair));
      }))
    return success();

  auto meanings = llvm::map_range(dims, [](const Dim &d) { return d.meaning; });
  auto sizes = llvm::map_to_vector(dims, [](const Dim &d) { return d.size; });
  std::string meaning = llvm::join(meanings, " x "), expected = show(sizes);
  InFlightDiagnostic diag = error("'" + name + "' must be of shape ");
  if (meaning != expected)
    diag << meaning << " = ";
  diag << expected << ", not " << show(shape);
  if (llvm::is_contained(sizes, Dim::kAny))
    diag << " (* is any size above 0)";
  bool fixesTokens = shape.size() == dims.size() && !dims.empty() &&
                     dims.front().size == Dim::kRunTime &&
                     !ShapedType::isDynamic(shape[0]);
  if (fixesTokens)
    diag << " (the number of " << dims.front().meaning
         << " is known only at run time: write '?')";
  return diag;
}

LogicalResult OperandChecker::checkElement(StringRef name, Value value,
                                           Type expected,
                                           const Twine &why) const {
  if (!value || getElementType(value) == expected)
    return success();
  return error("'" + name + "' must have elements of type ")
         << expected << ", " << why.str() << ", not " << getElementType(value);
}

} // namespace moec::moe
