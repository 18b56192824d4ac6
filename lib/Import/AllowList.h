//===- AllowList.h - keys that nobody has read ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_ALLOWLIST_H
#define MOEC_LIB_IMPORT_ALLOWLIST_H

#include "Families/Family.h"
#include "FieldReader.h"

namespace moec {

/// The keys that the user reads past (`--ignore-field`).
class IgnoredFields {
public:
  explicit IgnoredFields(llvm::ArrayRef<std::string> names) : names(names) {}

  /// Whether the user reads past a key, given its path; remembers the use.
  bool take(llvm::StringRef path);
  /// Those that were used, in the order of the command line.
  std::vector<std::string> getUsed() const;
  /// Reports those that were not.
  void reportUnused(llvm::StringRef fileName, Diagnostics &diags) const;

private:
  llvm::ArrayRef<std::string> names;
  llvm::SmallVector<llvm::StringRef> used;
};

/// Whether a key could describe a layer with experts, by its name.
bool couldMatter(llvm::StringRef key);

/// Whether a key says nothing of a layer with experts in any family.
bool isIrrelevantEverywhere(llvm::StringRef key);

/// Refuses every key of the object that could matter and that neither the
/// family nor anybody before has read. `inner` is the object within that has
/// the layer's keys, if this is not it: what repeats its keys is allowed.
void refuseUnreadKeys(FieldReader &config, const Family &family,
                      const LayerSpec &spec, IgnoredFields &ignored,
                      const json::Value *inner = nullptr);

} // namespace moec

#endif // MOEC_LIB_IMPORT_ALLOWLIST_H
