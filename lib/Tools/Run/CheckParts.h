//===- CheckParts.h - checks a checkpoint's tensors -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks for values that would silently give wrong results. Each check returns
// what is wrong with a tensor, or an empty string.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_CHECKPARTS_H
#define MOEC_LIB_TOOLS_RUN_CHECKPARTS_H

#include "UnpackElements.h"
#include "moert/Safetensors.h"

namespace moec {

enum class ScaleSign {
  Any,
  NotNegative, ///< includes 0, which makes weights 0
  Positive,    ///< for divisors
};

/// Checks that every scale is finite and has the sign. `dtype` is the type of
/// the elements, which a file may store as bytes; `first` is the index of the
/// first one in its tensor.
std::string checkScales(const moert::SafetensorsEntry &entry,
                        moert::DType dtype, ScaleSign sign, int64_t first = 0);

/// Reads the group of each column, in any order, and checks that each group is
/// complete. `groupColumns` is the number of columns per group, 0 for one
/// group.
std::string readGroups(const moert::SafetensorsEntry &entry, int64_t columns,
                       int64_t groupColumns, std::vector<int64_t> &groups);

/// Checks a tensor that contributes nothing to the layer. `rows` and `columns`
/// are those of the projection that the part belongs to: elements of a matrix,
/// or its scales.
std::string checkBeside(const CheckpointPart &part,
                        const moert::SafetensorsEntry &entry, int64_t rows,
                        int64_t columns);

/// A shape as messages show it: "[2, 3]".
std::string printShape(llvm::ArrayRef<int64_t> shape);

/// Whether two shapes differ only in dimensions of size 1.
bool isSameShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_CHECKPARTS_H
