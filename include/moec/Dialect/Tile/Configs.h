//===- Configs.h - configs of schedules, by field ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The interface of all config attributes (dialects/Tile/TileConfigs.td), whose
// fields are read and written by name here.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_TILE_CONFIGS_H
#define MOEC_DIALECT_TILE_CONFIGS_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallVector.h"

#include <variant>

namespace mlir {
class AsmParser;
class AsmPrinter;
} // namespace mlir

namespace moec::tile {

/// A number, a flag, or several numbers.
using ConfigValue = std::variant<int64_t, bool, llvm::SmallVector<int64_t>>;

/// A field of a config: "tile_columns", 64.
struct ConfigField {
  llvm::StringRef name;
  ConfigValue value;

  /// Whether the value is what a field has that nobody set: 0, false, none.
  bool isDefault() const;
};

} // namespace moec::tile

#include "dialects/Tile/TileConfigInterface.h.inc"

namespace moec::tile {

/// The config of the schedule with that name ("sm90.contract") with every field
/// at its default; null if no schedule has it.
ConfigAttr getEmptyConfig(mlir::MLIRContext *context, llvm::StringRef schedule);

// What the attributes share: their syntax behind the mnemonic, and what each of
// their fields has to be.
mlir::Attribute parseConfig(mlir::AsmParser &parser, ConfigAttr empty);
void printConfig(mlir::AsmPrinter &printer, ConfigAttr config);
mlir::LogicalResult
verifyConfig(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
             llvm::ArrayRef<ConfigField> fields);

} // namespace moec::tile

#endif // MOEC_DIALECT_TILE_CONFIGS_H
