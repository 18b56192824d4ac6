//===- TensorMap.cpp - tensor maps of the simulator -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Accepts what cuTensorMapEncodeTiled accepts.

#include "TensorMap.h"

#include "moec/PtxSim/Simulator.h"

#include <cstring>

using namespace moec::ptx;
using moert::Result;

static moert::Status reject(const std::string &text) {
  return moert::invalidArgument("encodeTensorMap: " + text);
}

Result<moert::TensorMap>
moec::ptx::encodeTensorMap(const moert::TensorMapRecipe &recipe) {
  constexpr int64_t kMaxBox = 256, kMaxSize = int64_t(1) << 32,
                    kMaxStride = int64_t(1) << 40;
  size_t rank = recipe.shape.size();
  if (rank < 1 || rank > kMaxRank || recipe.box.size() != rank ||
      recipe.strideBytes.size() != rank - 1)
    return reject("a rank from 1 to 5, with one box size per dimension and one "
                  "stride per dimension but the innermost, is accepted");
  int64_t bits = moert::dtypeBits(recipe.dtype);
  if (bits < 8)
    return reject("tensor maps do not support f4; describe its bytes as u8");
  TensorMapBits made;
  made.rank = uint8_t(rank);
  made.elementBytes = uint8_t(bits / 8);
  made.address = reinterpret_cast<uintptr_t>(recipe.data);
  if (made.address % 16 != 0)
    return reject("the address is not a multiple of 16");
  int64_t swizzle = recipe.swizzleBytes;
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return reject("swizzle of " + std::to_string(swizzle) +
                  " bytes; 0, 32, 64 or 128 is accepted");
  made.swizzleBytes = uint16_t(swizzle);
  for (size_t i = 0; i < rank; ++i) {
    size_t from = rank - 1 - i;
    if (recipe.shape[from] < 1 || recipe.shape[from] > kMaxSize ||
        recipe.box[from] < 1 || recipe.box[from] > kMaxBox)
      return reject("dimension " + std::to_string(from) + " has size " +
                    std::to_string(recipe.shape[from]) + " and box " +
                    std::to_string(recipe.box[from]) +
                    "; sizes from 1 and boxes from 1 to 256 are accepted");
    made.sizes[i] = uint32_t(recipe.shape[from] - 1);
    made.box[i] = uint16_t(recipe.box[from]);
    if (i + 1 == rank)
      continue;
    int64_t stride = recipe.strideBytes[from - 1];
    if (stride % 16 != 0 || stride < 0 || stride >= kMaxStride)
      return reject("the stride of dimension " + std::to_string(from - 1) +
                    ", " + std::to_string(stride) +
                    " bytes, is not a multiple of 16 below 2^40");
    made.strides[i] = uint64_t(stride);
  }
  int64_t innerBytes = int64_t(made.box[0]) * made.elementBytes;
  if (innerBytes % 16 != 0 || (swizzle != 0 && innerBytes > swizzle))
    return reject("the innermost box has " + std::to_string(innerBytes) +
                  " bytes; a multiple of 16, at most the swizzle, is accepted");
  moert::TensorMap map;
  std::memcpy(map.opaque, &made, sizeof(made));
  return map;
}
