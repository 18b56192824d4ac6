//===- AllowList.h - refusal of unread keys ---------------------*- C++ -*-===//
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

/// The keys that the user asked to ignore (`--ignore-field`).
class IgnoredFields {
public:
  /// Messages do not offer to ignore the keys `withheld`.
  explicit IgnoredFields(llvm::ArrayRef<std::string> names,
                         llvm::ArrayRef<std::string> withheld = {})
      : names(names), withheld(withheld) {}

  /// Whether a message is to offer ignoring the key; records the offer.
  bool offer(llvm::StringRef path);
  llvm::ArrayRef<std::string> getOffered() const { return offered; }

  /// Whether the user asked to ignore the key at this path; records the use.
  bool take(llvm::StringRef path);
  /// The keys that were present, in command-line order.
  std::vector<std::string> getUsed() const;
  /// Reports the keys that were not present.
  void reportUnused(llvm::StringRef fileName, Diagnostics &diags) const;

private:
  llvm::ArrayRef<std::string> names, withheld;
  llvm::SmallVector<llvm::StringRef> used;
  std::vector<std::string> offered;
};

/// Whether a key could describe a layer with experts, judged by its name.
bool couldMatter(llvm::StringRef key);

/// Whether a key describes no layer with experts in any family.
bool isIrrelevantEverywhere(llvm::StringRef key);

/// Refuses each key of the object that could matter and that has not been read,
/// neither by the family nor earlier. `inner` is the nested object with the
/// layer's keys, if `config` is not that object itself: keys that repeat its
/// values are allowed.
void refuseUnreadKeys(FieldReader &config, const Family &family,
                      const LayerSpec &spec, IgnoredFields &ignored,
                      const json::Value *inner = nullptr);

} // namespace moec

#endif // MOEC_LIB_IMPORT_ALLOWLIST_H
