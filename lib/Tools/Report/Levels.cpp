//===- Levels.cpp - linked levels of a layer --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Levels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AsmState.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/Compression.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;

static void addNames(Operation *op, Keys &keys) {
  if (auto names = op->getAttrOfType<ArrayAttr>(kNameAttr))
    for (auto name : names.getAsRange<StringAttr>())
      keys.insert(name.str());
}

/// The keys of an op's first line.
static Keys getKeys(Operation *op) {
  Keys keys;
  addNames(op, keys);
  auto addInner = [&](Operation *kernel, StringRef symbol) {
    keys.insert(("@" + symbol).str());
    kernel->walk([&](Operation *inner) { addNames(inner, keys); });
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](plan::TensorOp tensor) { keys.insert(tensor.getName().str()); })
      .Case([&](plan::BufferOp buffer) { keys.insert(buffer.getName().str()); })
      .Case([&](plan::LaunchOp launch) {
        keys.insert(("@" + launch.getKernel()).str());
        for (Value value : launch.getOuts())
          if (auto buffer = value.getDefiningOp<plan::BufferOp>())
            keys.insert(buffer.getName().str());
          else if (auto tensor = value.getDefiningOp<plan::TensorOp>())
            keys.insert(tensor.getName().str());
      })
      .Case(
          [&](plan::KernelOp kernel) { addInner(kernel, kernel.getSymName()); })
      .Case(
          [&](tile::KernelOp kernel) { addInner(kernel, kernel.getSymName()); })
      .Case([&](func::FuncOp func) {
        for (unsigned i = 0; i < func.getNumArguments(); ++i)
          if (auto name = func.getArgAttrOfType<StringAttr>(i, kNameAttr))
            keys.insert(name.str());
        for (unsigned i = 0; i < func.getNumResults(); ++i)
          if (auto name = func.getResultAttrOfType<StringAttr>(i, kNameAttr))
            keys.insert(name.str());
      });
  return keys;
}

void Levels::addText(StringRef id, StringRef title, StringRef text) {
  Level &level = levels.emplace_back();
  level.id = id;
  level.title = title;
  SmallVector<StringRef> lines;
  text.rtrim().split(lines, '\n');
  for (StringRef line : lines)
    level.lines.push_back({line.str(), {}});
}

void Levels::addIR(StringRef id, StringRef title, ModuleOp module,
                   const Keys &ofLayers) {
  std::string text;
  llvm::raw_string_ostream os(text);
  AsmState::LocationMap locations;
  AsmState state(module, OpPrintingFlags(), &locations);
  module.print(os, state);
  addText(id, title, text);
  std::vector<Line> &lines = levels.back().lines;
  for (auto [op, location] : locations) {
    size_t line = location.first - 1;
    if (line < lines.size())
      lines[line].keys.merge(isa<moe::LayerOp>(op) ? Keys(ofLayers)
                                                   : ::getKeys(op));
  }
}

Keys moec::report::getNames(ModuleOp module) {
  Keys names;
  module.walk([&](Operation *op) { addNames(op, names); });
  return names;
}

void Levels::addCode(StringRef id, StringRef title, std::string text) {
  levels.push_back({id.str(), title.str(), {}, std::move(text)});
}

/// Encodes in base 64, deflated if LLVM supports it.
static std::string pack(StringRef text, StringRef &encoding) {
  encoding = "identity";
  if (!llvm::compression::zlib::isAvailable())
    return llvm::encodeBase64(text);
  encoding = "deflate";
  SmallVector<uint8_t, 0> packed;
  llvm::compression::zlib::compress(llvm::arrayRefFromStringRef(text), packed);
  return llvm::encodeBase64(packed);
}

void Levels::show(raw_ostream &os) const {
  for (const Level &level : levels) {
    size_t count = level.code.empty() ? level.lines.size()
                                      : size_t(llvm::count(level.code, '\n'));
    os << llvm::formatv("<details class=\"level\" id=\"level-{0}\"><summary>"
                        "{1}<span class=\"count\">{2} lines</span></summary>",
                        level.id, escape(level.title), count);
    if (!level.code.empty()) {
      StringRef encoding;
      std::string packed = pack(level.code, encoding);
      os << "<pre class=\"ir\" data-encoding=\"" << encoding
         << "\" data-code=\"" << packed << "\"></pre></details>\n";
      continue;
    }
    os << "<pre class=\"ir\">";
    for (auto [i, line] : llvm::enumerate(level.lines))
      os << llvm::formatv("<span class=\"l\" id=\"{0}-{1}\"{2}>", level.id,
                          i + 1, showKeys(line.keys))
         << escape(line.text) << "\n</span>";
    os << "</pre></details>\n";
  }
}
