//===- Levels.h - linked levels of a layer ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_LEVELS_H
#define MOEC_LIB_TOOLS_REPORT_LEVELS_H

#include "Html.h"
#include "moec/Compiler/Compiler.h"

namespace moec::report {

/// Collects the levels that a layer is lowered through, for the end of the
/// page.
///
/// Lines of IR are linked by keys. An op's line is the one that the printer
/// reports; its keys are the names of results and tensors (moe.name), which ops
/// keep from level to level, and symbols of kernels. Lines of PTX are linked by
/// locations, because a kernel's code has the locations of its lines at level
/// tile.
class Levels {
public:
  /// `id` is one word, such as "tile".
  void addText(llvm::StringRef id, llvm::StringRef title, llvm::StringRef text);
  /// `ofLayers` are the keys of ops of whole layers.
  void addIR(llvm::StringRef id, llvm::StringRef title, mlir::ModuleOp module,
             const Keys &ofLayers = {});
  /// Adds code of kernels. It is too long to be in the page as text, so it is
  /// compressed and unpacked when it is opened.
  void addCode(llvm::StringRef id, llvm::StringRef title, std::string text);

  void show(llvm::raw_ostream &os) const;

private:
  struct Line {
    std::string text;
    Keys keys;
  };
  struct Level {
    std::string id, title;
    std::vector<Line> lines;
    std::string code;
  };
  std::vector<Level> levels;
};

/// The names of all results of a module.
Keys getNames(mlir::ModuleOp module);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_LEVELS_H
