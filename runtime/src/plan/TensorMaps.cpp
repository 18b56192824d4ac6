//===- TensorMaps.cpp - tensor maps of a plan -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorMaps.h"
#include "../support/Check.h"
#include "../support/Text.h"
#include "PlanChecks.h"

#include <algorithm>
#include <limits>

namespace moert {

// Limits of the driver's cuTensorMapEncodeTiled.
static constexpr size_t kMaxRank = 5;
static constexpr int64_t kMaxBox = 256;
static constexpr int64_t kMaxSize = int64_t(1) << 32;
static constexpr int64_t kMaxStrideBytes = int64_t(1) << 40;
static constexpr int64_t kChunkBytes = 16;

/// Saturating product.
static int64_t multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<int64_t>::max()
             : product;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

Status verifyTensorMap(const TensorMapDecl &map, const std::string &where) {
  size_t rank = map.sizes.size();
  if (rank < 1 || rank > kMaxRank)
    return wrong(where + ".sizes", "of rank " + std::to_string(rank),
                 "a rank from 1 to 5");
  for (auto [name, list] :
       {std::pair(".along", &map.along), std::pair(".steps", &map.steps),
        std::pair(".box", &map.box)})
    if (list->size() != rank)
      return wrong(where + name,
                   listText(*list) + ", of " + std::to_string(list->size()) +
                       " dimensions",
                   "one entry per dimension, " + std::to_string(rank) + ",");
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = map.sizes[i];
    bool isOwnRows = size == TensorMapDecl::kOwnRows;
    if (!isOwnRows && (size < 1 || size > kMaxSize))
      return wrong(at(where + ".sizes", i), num(size),
                   "1 to 2^32, or -1 for the tensor's own rows,");
    if (map.steps[i] < 1 || map.steps[i] > kMaxSize)
      return wrong(at(where + ".steps", i), num(map.steps[i]), "1 to 2^32");
    if (isOwnRows && (map.along[i] != 0 || map.steps[i] != 1))
      return wrong(at(where + ".sizes", i),
                   "the tensor's own rows, in steps of " + num(map.steps[i]) +
                       " along dimension " + num(map.along[i]),
                   "a step of 1 along dimension 0");
    if (map.box[i] < 1 || map.box[i] > kMaxBox)
      return wrong(at(where + ".box", i), num(map.box[i]), "1 to 256");
  }
  if (map.swizzleBytes != 0 && map.swizzleBytes != 32 &&
      map.swizzleBytes != 64 && map.swizzleBytes != 128)
    return wrong(where + ".swizzle", num(map.swizzleBytes), "0, 32, 64 or 128");
  return Status::ok();
}

/// Whether the last element of a view is inside a contiguous tensor. `last` are
/// its indices; the index along the last dimension may run into later rows.
static bool isInside(const std::vector<int64_t> &last,
                     const TensorDecl &tensor) {
  std::vector<int64_t> strides = tensorStrides(tensor);
  int64_t reach = 0, part = 0;
  for (size_t i = 0; i < last.size(); ++i)
    if (__builtin_mul_overflow(last[i], strides[i], &part) ||
        __builtin_add_overflow(reach, part, &reach))
      return false;
  return reach < multiply(strides[0], tensor.shape[0].constantValue());
}

/// Success if no dimension of the view leaves the tensor. Along the last
/// dimension the view may continue over the ends of rows.
static Status verifyExtents(const TensorMapDecl &map, const TensorDecl &tensor,
                            const std::string &where) {
  std::vector<int64_t> last(tensor.shape.size());
  bool runsOn = !tensor.strided &&
                std::all_of(tensor.shape.begin(), tensor.shape.end(),
                            [](const Expr &size) { return size.isConstant(); });
  for (size_t i = 0; i < map.sizes.size(); ++i) {
    int64_t dimension = map.along[i];
    if (dimension < 0 ||
        static_cast<uint64_t>(dimension) >= tensor.shape.size())
      return wrong(at(where + ".along", i), num(dimension),
                   "a dimension of '" + tensor.name + "', which has " +
                       std::to_string(tensor.shape.size()) + ",");
    bool isOwnRows = map.sizes[i] == TensorMapDecl::kOwnRows;
    if (!isOwnRows && !tensor.shape[dimension].isConstant())
      return wrong(at(where + ".sizes", i), num(map.sizes[i]),
                   "-1, the tensor's own rows, (those of '" + tensor.name +
                       "' depend on the tokens)");
    int64_t reach = 0;
    if (!isOwnRows &&
        (__builtin_mul_overflow(map.sizes[i] - 1, map.steps[i], &reach) ||
         __builtin_add_overflow(last[dimension], reach, &last[dimension]) ||
         (last[dimension] >= tensor.shape[dimension].constantValue() &&
          !(runsOn && dimension + 1 == int64_t(tensor.shape.size()) &&
            isInside(last, tensor)))))
      return wrong(at(where + ".sizes", i),
                   num(map.sizes[i]) + ", in steps of " + num(map.steps[i]),
                   "what stays within the " + tensor.shape[dimension].str() +
                       " indices of '" + tensor.name + "' in dimension " +
                       num(dimension));
  }
  return Status::ok();
}

static Status verifyStrides(const TensorMapDecl &map, const TensorDecl &tensor,
                            const std::string &where) {
  size_t inner = map.sizes.size() - 1;
  if (map.along[inner] + 1 != static_cast<int64_t>(tensor.shape.size()) ||
      map.steps[inner] != 1)
    return wrong(at(where + ".along", inner), num(map.along[inner]),
                 "a step of 1 along the last dimension of '" + tensor.name +
                     "'");
  TensorMapRecipe recipe =
      makeTensorMapRecipe(map, tensor, nullptr, 1, tensorStrides(tensor));
  for (size_t i = 0; i < inner; ++i)
    if (recipe.strideBytes[i] % kChunkBytes != 0 ||
        recipe.strideBytes[i] >= kMaxStrideBytes)
      return wrong(at(where + ".steps", i),
                   num(map.steps[i]) + ", or " + num(recipe.strideBytes[i]) +
                       " bytes of '" + tensor.name + "'",
                   "a multiple of 16 bytes below 2^40");
  return Status::ok();
}

Status verifyTensorMapOf(const TensorMapDecl &map, const TensorDecl &tensor,
                         const std::string &where) {
  int64_t bits = dtypeBits(tensor.dtype);
  if (bits % 8 != 0)
    return wrong(where + ".argument",
                 "'" + tensor.name + "' of " + dtypeName(tensor.dtype),
                 "a tensor whose elements are whole bytes");
  MOERT_CHECK(verifyExtents(map, tensor, where));
  MOERT_CHECK(verifyStrides(map, tensor, where));
  bool isOurs = tensor.role == TensorRole::Workspace ||
                tensor.role == TensorRole::Prepared;
  if (!isOurs && tensor.alignment % kChunkBytes != 0)
    return wrong(where + ".argument",
                 "'" + tensor.name + "' on multiples of " +
                     num(tensor.alignment) + " bytes",
                 "a tensor whose alignment is a multiple of 16");
  int64_t row = map.box.back() * (bits / 8);
  if (row % kChunkBytes != 0 || (map.swizzleBytes && row > map.swizzleBytes))
    return wrong(at(where + ".box", map.box.size() - 1),
                 num(map.box.back()) + ", or " + num(row) + " bytes",
                 "a multiple of 16 bytes" +
                     (map.swizzleBytes
                          ? " up to the swizzle, " + num(map.swizzleBytes) + ","
                          : ""));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Recipes
//===----------------------------------------------------------------------===//

std::vector<int64_t> contiguousStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i > 1; --i)
    strides[i - 2] =
        multiply(strides[i - 1], std::max<int64_t>(shape[i - 1], 1));
  return strides;
}

std::vector<int64_t> tensorStrides(const TensorDecl &tensor) {
  std::vector<int64_t> shape;
  for (const Expr &size : tensor.shape)
    shape.push_back(size.isConstant() ? size.constantValue() : 1);
  return contiguousStrides(shape);
}

TensorMapRecipe makeTensorMapRecipe(const TensorMapDecl &map,
                                    const TensorDecl &tensor, void *data,
                                    int64_t rows,
                                    const std::vector<int64_t> &strides) {
  TensorMapRecipe recipe;
  recipe.data = data;
  recipe.dtype = tensor.dtype;
  recipe.box = map.box;
  recipe.swizzleBytes = map.swizzleBytes;
  for (size_t i = 0; i < map.sizes.size(); ++i) {
    recipe.shape.push_back(
        map.sizes[i] == TensorMapDecl::kOwnRows ? rows : map.sizes[i]);
    if (i + 1 < map.sizes.size())
      recipe.strideBytes.push_back(
          multiply(multiply(strides[map.along[i]], map.steps[i]),
                   dtypeBits(tensor.dtype) / 8));
  }
  return recipe;
}

} // namespace moert
