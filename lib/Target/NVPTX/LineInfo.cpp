//===- LineInfo.cpp - maps PTX lines to lines of IR -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LineInfo.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Transforms/LocationSnapshot.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Target/NVPTX.h"
#include "llvm/BinaryFormat/Dwarf.h"

using namespace mlir;
using namespace moec;

/// File name as in `--dump-dir`. The name of the input is left out, so that the
/// PTX depends only on what the layer computes.
static constexpr llvm::StringLiteral kFile = "layer.tile.mlir";
/// Distinguishes these locations from the original ones, which messages use.
static constexpr llvm::StringLiteral kTag = "tile";

/// The line of level tile in a location; null if there is none.
static FileLineColLoc findTileLine(Location location) {
  FileLineColLoc found;
  location->walk([&](Location part) {
    auto named = dyn_cast<NameLoc>(part);
    if (!named || named.getName() != kTag)
      return WalkResult::advance();
    found = dyn_cast<FileLineColLoc>(named.getChildLoc());
    return WalkResult::interrupt();
  });
  return found;
}

void moec::recordTileLines(ModuleOp module) {
  SmallVector<std::pair<tile::KernelOp, Location>> kernels;
  for (auto kernel : module.getOps<tile::KernelOp>())
    kernels.emplace_back(kernel, kernel.getLoc());
  llvm::raw_null_ostream nowhere;
  generateLocationsFromIR(nowhere, kFile, kTag, module, OpPrintingFlags());
  // A kernel gets the line of its first op, which shows what is computed and
  // with which config.
  for (auto [kernel, location] : kernels) {
    FileLineColLoc line =
        findTileLine(kernel.getBody().front().front().getLoc());
    auto named = NameLoc::get(StringAttr::get(module.getContext(), kTag), line);
    kernel->setLoc(FusedLoc::get(module.getContext(), {location, named}));
  }
}

static LLVM::DISubprogramAttr describe(LLVM::LLVMFuncOp kernel,
                                       FileLineColLoc line) {
  MLIRContext *context = kernel.getContext();
  auto makeId = [&] { return DistinctAttr::create(UnitAttr::get(context)); };
  auto file = LLVM::DIFileAttr::get(context, kFile, "");
  // DWARF has no language number for IR.
  auto unit = LLVM::DICompileUnitAttr::get(
      makeId(), llvm::dwarf::DW_LANG_C, file, StringAttr::get(context, "moec"),
      /*isOptimized=*/true, LLVM::DIEmissionKind::DebugDirectivesOnly);
  auto type = LLVM::DISubroutineTypeAttr::get(
      context, llvm::dwarf::DW_CC_normal, /*types=*/{});
  return LLVM::DISubprogramAttr::get(
      context, makeId(), unit, file, kernel.getNameAttr(), kernel.getNameAttr(),
      file, line.getLine(), /*scopeLine=*/line.getLine(),
      LLVM::DISubprogramFlags::Definition | LLVM::DISubprogramFlags::Optimized,
      type, /*retainedNodes=*/{}, /*annotations=*/{});
}

void moec::attachLineInfo(ModuleOp module) {
  for (auto kernel : module.getOps<LLVM::LLVMFuncOp>()) {
    FileLineColLoc line = findTileLine(kernel.getLoc());
    if (!line || kernel.isExternal())
      continue;
    kernel->setLoc(
        FusedLoc::get(module.getContext(), {line}, describe(kernel, line)));
    kernel.walk([&](Operation *op) {
      if (op == kernel)
        return;
      FileLineColLoc own = findTileLine(op->getLoc());
      op->setLoc(own ? own : line);
    });
  }
}
