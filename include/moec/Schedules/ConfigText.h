//===- ConfigText.h - configs as people write them --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_CONFIGTEXT_H
#define MOEC_SCHEDULES_CONFIGTEXT_H

#include "moec/Dialect/Tile/Tile.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace moec {

/// Prints the fields of a config that are not at their defaults, for example
/// "sm90.gemm block_m=16+32 block_n=64 block_k=64 stages=12 map_rows".
std::string printConfig(tile::ConfigAttr config);
/// Prints all fields ("no_swap_ab=false"): forced, this text gives exactly the
/// config, whatever would be chosen.
std::string printWholeConfig(tile::ConfigAttr config);

/// A config that the user forces on a kernel, by the commands' options:
/// "KERNEL:TEXT" or "KERNEL@MIN-MAX:TEXT".
struct ForcedConfig {
  /// Kernel name with its range ("experts_hidden_t64"), or without it
  /// ("experts_hidden") for all ranges.
  std::string kernel;
  struct Tokens {
    int64_t min, max;
  };
  /// Restricts it to these token counts.
  std::optional<Tokens> tokens;
  /// Text as printed by `printConfig`; fields left out are chosen.
  std::string text;

  static llvm::Expected<ForcedConfig> parse(llvm::StringRef entry);
  std::string str() const;

  /// Whether it applies to the kernel, by name and token counts.
  bool isFor(tile::KernelOp kernel) const;
  /// Whether it would apply to a kernel with this name and load.
  bool isFor(llvm::StringRef name, tile::LoadAttr load) const;
  /// The schedule at the start of the text, or "".
  llvm::StringRef getSchedule() const;
  /// `base` with the text's fields, or the error in the text.
  llvm::Expected<tile::ConfigAttr> apply(tile::ConfigAttr base) const;
};

/// Parses all entries; the error is that of the first malformed one.
llvm::Expected<std::vector<ForcedConfig>>
parseForcedConfigs(llvm::ArrayRef<std::string> entries);

/// Name of the kernel that takes the large groups from `kernel`:
/// "experts_hidden_large_groups_t64" from "experts_hidden_t64".
std::string getLargeGroupsName(tile::KernelOp kernel);

/// Name of a kernel like `kernel` for another load: "experts_hidden_t8" from
/// "experts_hidden_t64".
std::string getNameInRange(tile::KernelOp kernel, tile::LoadAttr load);

/// Name by which configs are forced on a collective's kernel: "all_gather_dp".
/// The kind alone names the first collective of that kind.
std::string getExchangeName(plan::CollectiveOp collective);

/// Whether one of them applies to the kernel.
bool isForced(tile::KernelOp kernel, llvm::ArrayRef<ForcedConfig> forced);

} // namespace moec

#endif // MOEC_SCHEDULES_CONFIGTEXT_H
