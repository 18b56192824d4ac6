//===- ExcludedModules.h - modules kept from quantization -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_EXCLUDEDMODULES_H
#define MOEC_LIB_IMPORT_EXCLUDEDMODULES_H

#include "Families/Family.h"
#include "FieldReader.h"

#include <functional>
#include <string>
#include <vector>

namespace moec {

/// How much of the matrices of a layer's product a list of modules names.
enum class Coverage { None, Some, All };

/// The rule by which an entry of a list matches modules. Every rule takes
/// regular expressions too ("re:.*mlp.*").
enum class ModuleMatching {
  /// A name, a part of it or a parent, with `*`. Tools that read one field
  /// differ in their rules: this is what they have in common.
  Components,
  /// `match_name` and `_match_class` of compressed-tensors: a whole name or a
  /// class. A parent's name does not match its children.
  CompressedTensors,
};

/// Which matrices of one layer a quantization leaves alone.
class ExcludedModules {
public:
  ExcludedModules(const Family &family, const LayerSpec &spec,
                  ModuleMatching matching);

  /// Takes an entry of a list. False when it is an expression that cannot be
  /// understood here.
  bool exclude(llvm::StringRef entry);

  /// What all entries together name of the matrices that are a weight of the
  /// layer ("experts.w13": gate and up of all experts).
  Coverage getCoverage(llvm::StringRef weight) const;
  /// Whether no product is left that is quantized.
  bool coversAll() const;
  /// The first entry that named a matrix of a weight.
  llvm::StringRef getFirstHit(llvm::StringRef weight) const;

private:
  /// A matrix of the layer, under the names that models give it.
  struct Module {
    /// The weight of the layer that it is a part of.
    llvm::StringRef weight;
    std::vector<std::string> names;
    /// The first entry that names it; empty for none.
    std::string entry;
  };

  /// Adds the matrices of an expert, once.
  void addExpert(int64_t expert);
  /// Adds a matrix of a weight by its module's name in the block.
  void addModule(llvm::StringRef weight, llvm::StringRef nameInBlock);

  /// An entry of a list.
  struct Entry {
    std::string text;
    std::function<bool(llvm::StringRef)> isNamed;
  };
  static void mark(Module &module, const Entry &entry);

  const Family &family;
  const LayerSpec &spec;
  ModuleMatching matching;
  std::vector<Module> modules;
  std::vector<Entry> entries;
  llvm::SmallVector<int64_t, 4> experts;
};

} // namespace moec

#endif // MOEC_LIB_IMPORT_EXCLUDEDMODULES_H
