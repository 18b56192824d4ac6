//===- TileAttrs.cpp - attributes of the tile dialect -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorMaps.h"

#include "mlir/IR/OpImplementation.h"
#include "moec/Support/Parts.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::tile;

FailureOr<SmallVector<int64_t>> tile::parseIntegerList(AsmParser &parser) {
  SmallVector<int64_t> values;
  ParseResult result = parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Square, [&]() -> ParseResult {
        if (succeeded(parser.parseOptionalQuestion())) {
          values.push_back(ShapedType::kDynamic);
          return success();
        }
        return parser.parseInteger(values.emplace_back());
      });
  if (result)
    return failure();
  return values;
}

void tile::printIntegerList(AsmPrinter &printer, ArrayRef<int64_t> values) {
  printer << '[';
  llvm::interleaveComma(values, printer, [&](int64_t value) {
    if (ShapedType::isDynamic(value))
      printer << '?';
    else
      printer << value;
  });
  printer << ']';
}

//===----------------------------------------------------------------------===//
// Kernels and groups
//===----------------------------------------------------------------------===//

LogicalResult
KernelFormAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                       bool /*independent*/, bool /*ahead*/, bool /*resident*/,
                       bool /*late*/, int64_t registers, int64_t cluster) {
  constexpr int64_t most = 8;
  if (cluster < 0 || cluster > most)
    return emitError() << "'cluster' is " << cluster << "; 0 to " << most
                       << " are accepted";
  if (registers < 0 || registers > kRegistersPerThread)
    return emitError() << "'registers' is " << registers << "; 0 to "
                       << kRegistersPerThread << " are accepted";
  return success();
}

LogicalResult
GroupRowsAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t min,
                      int64_t max) {
  if (min < 1 || max < 1)
    return emitError() << "goes from 'min' " << min << " to 'max' " << max
                       << "; both ends must be at least 1";
  if (max < min)
    return emitError() << "goes from 'min' " << min << " to 'max' " << max
                       << ", an empty range; give a 'max' of at least 'min'";
  return success();
}

LogicalResult SumOrderAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   SumUnit unit, int64_t k, int64_t shuffled,
                                   int64_t splits, int64_t adjacent,
                                   int64_t promoted, bool joined) {
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>{"k", k}, {"splits", splits}})
    if (value < 1)
      return emitError() << "'" << name << "' is " << value
                         << "; it must be at least 1";
  for (auto [name, value] :
       {std::pair<StringRef, int64_t>{"shuffled", shuffled},
        {"adjacent", adjacent},
        {"promoted", promoted}})
    if (value < 0)
      return emitError() << "'" << name << "' is " << value
                         << "; it must be at least 0";
  if (unit == SumUnit::Fma && k != 1)
    return emitError() << "'k' is " << k
                       << ", but an FMA adds one product; give 1";
  if (joined && promoted == 0)
    return emitError() << "has 'joined', but nothing is promoted; give "
                          "'promoted', or leave 'joined' out";
  return success();
}

//===----------------------------------------------------------------------===//
// Load
//===----------------------------------------------------------------------===//

LogicalResult LoadAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t minTokens, int64_t maxTokens,
                               int64_t topK, int64_t experts) {
  // The largest 'max_tokens' of a program.
  constexpr int64_t largest = (int64_t(1) << 31) - 1;
  if (minTokens < 0 || maxTokens < std::max<int64_t>(minTokens, 1) ||
      maxTokens > largest)
    return emitError() << "goes from 'min_tokens' " << minTokens
                       << " to 'max_tokens' " << maxTokens
                       << "; a range that ends between 1 and 2^31 - 1 is "
                          "accepted";
  if (topK < 1 || experts < topK || experts > largest)
    return emitError() << "has 'top_k' " << topK << " of 'experts' " << experts
                       << "; at least 1 of at most 2^31 - 1 is accepted";
  return success();
}

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

// Limits of the driver's cuTensorMapEncodeTiled.
static constexpr size_t kMaxRank = 5;
static constexpr int64_t kMaxBox = 256;
static constexpr int64_t kMaxSize = int64_t(1) << 32;
static constexpr uint64_t kMaxStrideBytes = uint64_t(1) << 40;
static constexpr int64_t kChunkBytes = 16;

LogicalResult
TensorMapAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                      int64_t argument, ArrayRef<int64_t> sizes,
                      ArrayRef<int64_t> along, ArrayRef<int64_t> steps,
                      ArrayRef<int64_t> box, int64_t swizzle) {
  if (argument < 0)
    return emitError() << "'argument' is " << argument
                       << "; the number of a kernel's argument is accepted";
  if (sizes.empty() || sizes.size() > kMaxRank)
    return emitError() << "'sizes' has " << sizes.size()
                       << " dimensions; 1 to 5 are accepted";
  for (auto [name, values] : {std::pair("along", along),
                              std::pair("steps", steps), std::pair("box", box)})
    if (values.size() != sizes.size())
      return emitError() << "'" << name << "' has " << values.size()
                         << " entries; one per dimension of 'sizes', "
                         << sizes.size() << ", is accepted";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!ShapedType::isDynamic(sizes[i]) &&
        (sizes[i] < 1 || sizes[i] > kMaxSize))
      return emitError() << "'sizes' has " << sizes[i] << " at index " << i
                         << "; 1 to 2^32, or '?' for the argument's rows, is "
                            "accepted";
    if (ShapedType::isDynamic(sizes[i]) && (along[i] != 0 || steps[i] != 1))
      return emitError() << "'sizes' has '?' at index " << i
                         << "; it stands for all rows: 'along' must be 0 there "
                            "and 'steps' 1";
    if (along[i] < 0 || steps[i] < 1 || steps[i] > kMaxSize)
      return emitError() << "dimension " << i << " goes " << steps[i]
                         << " steps along dimension " << along[i]
                         << "; 1 to 2^32 steps along a dimension of the "
                            "argument are accepted";
    if (box[i] < 1 || box[i] > kMaxBox)
      return emitError() << "'box' has " << box[i] << " at index " << i
                         << "; 1 to 256 elements are accepted";
  }
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return emitError() << "'swizzle' is " << swizzle
                       << "; 0, 32, 64 or 128 bytes are accepted";
  return success();
}

namespace {

/// Checks one map against the memref that it views.
class MapVerifier {
public:
  MapVerifier(KernelOp kernel, size_t number, TensorMapAttr map)
      : kernel(kernel), number(number), map(map) {}

  LogicalResult run() {
    ArrayRef<Type> types = kernel.getArgumentTypes().drop_back();
    if (map.getArgument() >= static_cast<int64_t>(types.size()))
      return fail() << "is of argument " << map.getArgument()
                    << ", and the kernel has " << types.size() << " memrefs";
    type = dyn_cast<MemRefType>(types[map.getArgument()]);
    if (!type)
      return fail() << "is of argument " << map.getArgument() << ", a "
                    << types[map.getArgument()] << "; it must be of a memref";
    if (!type.getElementType().isIntOrFloat() ||
        type.getElementTypeBitWidth() % 8)
      return fail() << "has elements of type " << type.getElementType()
                    << "; whole bytes are accepted";
    for (auto [i, dimension] : llvm::enumerate(map.getAlong()))
      if (dimension >= type.getRank())
        return fail() << "goes along dimension " << dimension << " at index "
                      << i << "; argument " << map.getArgument() << " has "
                      << type.getRank() << " dimensions";
    if (failed(verifyExtents()) || failed(verifyStrides()))
      return failure();
    return verifyBox();
  }

private:
  InFlightDiagnostic fail() {
    InFlightDiagnostic diagnostic = kernel.emitOpError("tensor_maps[");
    diagnostic << number << "] ";
    return diagnostic;
  }

  /// Verifies that the last element of the view lies in the memref. Along its
  /// last dimension a view may cross the ends of rows, which are adjacent.
  LogicalResult verifyExtents() {
    SmallVector<uint64_t> last(type.getRank(), 0);
    for (auto [size, dimension, step] :
         llvm::zip(map.getSizes(), map.getAlong(), map.getSteps())) {
      if (ShapedType::isDynamic(size) != type.isDynamicDim(dimension))
        return fail() << "needs the size '?' exactly where it goes along a "
                         "dimension that is not constant";
      if (!ShapedType::isDynamic(size))
        last[dimension] = llvm::SaturatingMultiplyAdd<uint64_t>(
            size - 1, step, last[dimension]);
    }
    if (type.hasStaticShape() && type.getLayout().isIdentity()) {
      uint64_t stride = 1, reach = 0;
      for (int64_t i = type.getRank() - 1; i >= 0; --i) {
        reach = llvm::SaturatingMultiplyAdd<uint64_t>(last[i], stride, reach);
        stride *= type.getDimSize(i);
      }
      if (reach < stride)
        last.back() = 0;
    }
    for (auto [dimension, index] : llvm::enumerate(last))
      if (!type.isDynamicDim(dimension) &&
          index >= static_cast<uint64_t>(type.getDimSize(dimension)))
        return fail() << "reaches index " << index << " of dimension "
                      << dimension << " of argument " << map.getArgument()
                      << ", which has " << type.getDimSize(dimension);
    return success();
  }

  LogicalResult verifyStrides() {
    int64_t inner = map.getSizes().size() - 1;
    if (map.getAlong()[inner] != type.getRank() - 1 ||
        map.getSteps()[inner] != 1)
      return fail() << "must go in steps of 1 along the argument's last "
                       "dimension at its own last one";
    for (int64_t i = 0; i < inner; ++i) {
      uint64_t stride = getBytes() * map.getSteps()[i];
      for (int64_t size : type.getShape().drop_front(map.getAlong()[i] + 1))
        stride = llvm::SaturatingMultiply<uint64_t>(stride, size);
      if (stride % kChunkBytes || stride >= kMaxStrideBytes)
        return fail() << "goes " << stride << " bytes at index " << i
                      << "; a multiple of 16 below 2^40 is accepted";
    }
    return success();
  }

  LogicalResult verifyBox() {
    int64_t row = map.getBox().back() * getBytes();
    if (row % kChunkBytes)
      return fail() << "has a box of " << row
                    << " bytes in its last dimension; a multiple of 16 is "
                       "accepted";
    if (map.getSwizzle() && row > map.getSwizzle())
      return fail() << "has a box of " << row
                    << " bytes in its last dimension; at most the swizzle's "
                    << map.getSwizzle() << " are accepted";
    return success();
  }

  int64_t getBytes() const { return type.getElementTypeBitWidth() / 8; }

  KernelOp kernel;
  size_t number;
  TensorMapAttr map;
  MemRefType type;
};

} // namespace

LogicalResult tile::verifyTensorMaps(KernelOp kernel) {
  if (!kernel.getTensorMaps())
    return success();
  for (auto [i, map] :
       llvm::enumerate(kernel.getTensorMaps()->getAsRange<TensorMapAttr>()))
    if (failed(MapVerifier(kernel, i, map).run()))
      return failure();
  return success();
}
