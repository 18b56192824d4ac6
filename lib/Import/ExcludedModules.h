//===- ExcludedModules.h - modules excluded from quantization ---*- C++ -*-===//
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

/// Share of the matrices of a gemm that is excluded.
enum class Coverage { None, Some, All };

/// Rule by which an entry of the list matches modules. Regular expressions
/// ("re:.*mlp.*") are accepted by both.
enum class ModuleMatching {
  /// A name, a component of it, or a parent, with `*`. The tools that read such
  /// a field differ in detail; this is their common subset.
  Components,
  /// `match_name` and `_match_class` of compressed-tensors: a whole name or a
  /// class. The name of a parent does not match its children.
  CompressedTensors,
};

/// The matrices of one layer that are excluded from quantization.
class ExcludedModules {
public:
  ExcludedModules(const Family &family, const LayerSpec &spec,
                  ModuleMatching matching);

  /// Adds an entry of the list. Returns false for a regular expression that
  /// cannot be translated.
  bool exclude(llvm::StringRef entry);

  /// The share of the matrices of a weight ("experts.w13": gate and up of all
  /// experts) that is excluded by all entries.
  Coverage getCoverage(llvm::StringRef weight) const;
  /// Whether no quantized gemm remains.
  bool coversAll() const;
  /// The first entry that excluded a matrix of a weight.
  llvm::StringRef getFirstHit(llvm::StringRef weight) const;

private:
  /// A matrix of the layer, under the names that models give it.
  struct Module {
    /// The weight of the layer that contains it.
    llvm::StringRef weight;
    std::vector<std::string> names;
    /// The first entry that excluded it; empty if none did.
    std::string entry;
  };

  /// Adds the matrices of an expert, unless already added.
  void addExpert(int64_t expert);
  /// Adds a matrix of a weight by its module name in the block.
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
