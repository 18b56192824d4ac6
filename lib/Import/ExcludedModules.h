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

#include <string>
#include <vector>

namespace moec {

/// How much of a layer's matrices a list of modules names.
enum class Coverage { None, Some, All };

/// Which matrices of one layer a quantization leaves alone: its lists name
/// modules by their whole name, a part or a parent of it, with `*`, or by a
/// regular expression ("re:.*mlp.*").
class ExcludedModules {
public:
  ExcludedModules(const Family &family, const LayerSpec &spec);

  /// Takes an entry of a list. False when it is an expression that cannot be
  /// understood here.
  bool exclude(llvm::StringRef entry);

  /// What all entries together name.
  Coverage getCoverage() const;
  /// The first entry that named a matrix of the layer.
  llvm::StringRef getFirstHit() const { return firstHit; }

private:
  /// A matrix of the layer, under the names that models give it.
  struct Module {
    std::vector<std::string> names;
    bool isExcluded = false;
  };

  /// Adds the matrices of an expert, once.
  void addExpert(int64_t expert);
  /// Adds a matrix by its module's name in the block.
  void addModule(llvm::StringRef nameInBlock);

  const Family &family;
  const LayerSpec &spec;
  std::vector<Module> modules;
  llvm::SmallVector<int64_t, 4> experts;
  std::string firstHit;
};

} // namespace moec

#endif // MOEC_LIB_IMPORT_EXCLUDEDMODULES_H
