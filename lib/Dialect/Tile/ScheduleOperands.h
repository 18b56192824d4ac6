//===- ScheduleOperands.h - operands for a schedule alone -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_DIALECT_TILE_SCHEDULEOPERANDS_H
#define MOEC_LIB_DIALECT_TILE_SCHEDULEOPERANDS_H

#include "mlir/IR/OpImplementation.h"

#include <optional>

namespace moec::tile {

using OptionalOperand = std::optional<mlir::OpAsmParser::UnresolvedOperand>;

/// Syntax of the present ones of five operands:
/// `ids = %i : memref<?x8xi32>, tile_counter = %c : memref<1xi32>`.
mlir::ParseResult
parseScheduleOperands(mlir::OpAsmParser &parser, OptionalOperand &ids,
                      mlir::Type &idsType, OptionalOperand &signals,
                      mlir::Type &signalsType, OptionalOperand &awaits,
                      mlir::Type &awaitsType, OptionalOperand &tileCounter,
                      mlir::Type &tileCounterType, OptionalOperand &cleared,
                      mlir::Type &clearedType);
void printScheduleOperands(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                           mlir::Value ids, mlir::Type idsType,
                           mlir::Value signals, mlir::Type signalsType,
                           mlir::Value awaits, mlir::Type awaitsType,
                           mlir::Value tileCounter, mlir::Type tileCounterType,
                           mlir::Value cleared, mlir::Type clearedType);

} // namespace moec::tile

#endif // MOEC_LIB_DIALECT_TILE_SCHEDULEOPERANDS_H
