//===- CheckParts.h - what a checkpoint's tensors have to hold --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values that would be wrong without anybody seeing it: each check says what is
// wrong with a tensor, or nothing.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_CHECKPARTS_H
#define MOEC_LIB_TOOLS_RUN_CHECKPARTS_H

#include "UnpackElements.h"
#include "moert/Safetensors.h"

namespace moec {

/// Which finite scales are right.
enum class ScaleSign {
  Any,
  NotNegative, ///< 0 too, which makes weights 0
  Positive,    ///< what is divided by them
};

/// Every scale is finite, and has the sign. `dtype` is what the elements are,
/// which a file may call bytes; `first` is the number of the first one in its
/// tensor.
std::string checkScales(const moert::SafetensorsEntry &entry,
                        moert::DType dtype, ScaleSign sign, int64_t first = 0);

/// The group of each column, in whatever order; each group has all its columns.
/// `groupColumns` is their number, 0 for one group.
std::string readGroups(const moert::SafetensorsEntry &entry, int64_t columns,
                       int64_t groupColumns, std::vector<int64_t> &groups);

/// A tensor of which nothing goes into the layer. `rows` and `columns` are
/// those of the projection that the part belongs to: elements of a matrix, or
/// its scales.
std::string checkBeside(const CheckpointPart &part,
                        const moert::SafetensorsEntry &entry, int64_t rows,
                        int64_t columns);

/// As messages show a shape: "[2, 3]".
std::string printShape(llvm::ArrayRef<int64_t> shape);

/// Shapes are the same tensor when they differ in dimensions of size 1 alone.
bool isSameShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_CHECKPARTS_H
