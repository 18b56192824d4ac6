//===- Prepacking.h - weights that can be prepacked -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_PREPACKING_H
#define MOEC_DIALECT_MOE_PREPACKING_H

#include "moec/Dialect/Moe/Moe.h"

#include <optional>
#include <string>

namespace moec::moe {

/// The packing for a gemm with inputs of type `input`: bf16, f16 or e4m3;
/// nothing for other types.
std::optional<Packing> getPrepacking(mlir::Type input);

/// Reason why weights with such scales cannot have `packing`; empty if they
/// can. `group`: elements per scale along K, for groups and blocks.
/// `hasOffsets`: each scale has a zero point or a minimum beside it.
std::string whyNotPrepacked(mlir::Type storage, mlir::Type scale,
                            Granularity granularity, int64_t group,
                            bool hasOffsets, Packing packing);
/// Reason why weights that are not prepacked yet cannot be; empty if they can.
std::string whyNotPrepacked(QuantAttr plain, Packing packing);
/// Reason why a matrix of this size cannot be prepacked; empty if it can.
std::string whyNotPrepacked(int64_t rows, int64_t sizeK);

/// The quant of weights after prepacking.
QuantAttr getPrepacked(QuantAttr plain, Packing packing);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_PREPACKING_H
