//===- ConfigText.h - configs as people write them --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_CONFIGTEXT_H
#define MOEC_ANALYSIS_CONFIGTEXT_H

#include "moec/Dialect/Tile/Tile.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace moec {

/// "sm90.contract tile_rows=16+32 tile_columns=64 step=64 stages=12 map_rows":
/// the fields of the config's attribute that are not at their defaults.
std::string printConfig(tile::ConfigAttr config);
/// The same with all fields ("rows_on_m=false"): as the text of a forced config
/// it is that config, whatever is chosen.
std::string printWholeConfig(tile::ConfigAttr config);

/// A config that somebody wants for a kernel, as in the options of the
/// commands: "KERNEL:TEXT" or "KERNEL@MIN-MAX:TEXT".
struct ForcedConfig {
  /// The name of a kernel, with or without its range ("experts_hidden_t64",
  /// "experts_hidden" for all of its ranges).
  std::string kernel;
  struct Tokens {
    int64_t min, max;
  };
  /// The only token counts that it is for.
  std::optional<Tokens> tokens;
  /// As `printConfig` has it; what is left out is as chosen.
  std::string text;

  static llvm::Expected<ForcedConfig> parse(llvm::StringRef entry);
  std::string str() const;

  /// Whether the kernel is one that it names, for tokens that it is for.
  bool isFor(tile::KernelOp kernel) const;
  /// The same of a kernel that would have this name and load.
  bool isFor(llvm::StringRef name, tile::LoadAttr load) const;
  /// The schedule that the text begins with, or "".
  llvm::StringRef getSchedule() const;
  /// `base` with what the text says, or what is wrong with the text.
  llvm::Expected<tile::ConfigAttr> apply(tile::ConfigAttr base) const;
};

/// All of them, or what is wrong with the first that is none.
llvm::Expected<std::vector<ForcedConfig>>
parseForcedConfigs(llvm::ArrayRef<std::string> entries);

/// The name of the kernel that takes the groups with many rows from a kernel:
/// "experts_hidden_large_groups_t64" from "experts_hidden_t64".
std::string getLargeGroupsName(tile::KernelOp kernel);

/// What a config may call the kernel of a collective: "all_gather_dp". One that
/// names the kind alone is for the first of it.
std::string getExchangeName(plan::CollectiveOp collective);

/// Whether one of them is for the kernel.
bool isForced(tile::KernelOp kernel, llvm::ArrayRef<ForcedConfig> forced);

} // namespace moec

#endif // MOEC_ANALYSIS_CONFIGTEXT_H
