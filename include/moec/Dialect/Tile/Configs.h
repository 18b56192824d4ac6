//===- Configs.h - configs of schedules, by field ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Access to the fields of config attributes by name
// (lib/Schedules/*/Config.td).
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

/// A field of a config: "block_n", 64.
struct ConfigField {
  llvm::StringRef name;
  ConfigValue value;

  /// Whether the value is the default of its type: 0, false, empty.
  bool isDefault() const;
};

class ConfigAttr;

/// The config with this value of a flag; unchanged if it has no such field.
ConfigAttr withFlag(ConfigAttr config, llvm::StringRef name, bool value);

} // namespace moec::tile

#include "dialects/Tile/TileConfigInterface.h.inc"

namespace moec::tile {

/// The config of a schedule ("gpu.gemv") with every field at its default;
/// null if there is no such schedule.
ConfigAttr getEmptyConfig(mlir::MLIRContext *context, llvm::StringRef schedule);

// Shared by all config attributes: the syntax after the mnemonic, and the range
// of fields.
mlir::Attribute parseConfig(mlir::AsmParser &parser, ConfigAttr empty);
void printConfig(mlir::AsmPrinter &printer, ConfigAttr config);
mlir::LogicalResult
verifyConfig(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
             llvm::ArrayRef<ConfigField> fields);

} // namespace moec::tile

#endif // MOEC_DIALECT_TILE_CONFIGS_H
