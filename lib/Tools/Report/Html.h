//===- Html.h - text that pages are made of ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_HTML_H
#define MOEC_LIB_TOOLS_REPORT_HTML_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <set>
#include <string>

namespace moec::report {

/// A text as it stands between tags or in an attribute of HTML and SVG.
std::string escape(llvm::StringRef text);

/// What parts of a page are about: names of tensors, and of kernels behind "@".
/// Parts with a name in common are shown together.
using Keys = std::set<std::string>;

/// ` data-keys="..."`, or nothing where there are none.
std::string showKeys(const Keys &keys);

/// "3.2 us", "1.4 ms".
std::string showTime(double us);
/// "512 B", "1.5 KiB", "3.0 MiB".
std::string showBytes(double bytes);
/// "12.5 Mop", "1.4 Gop".
std::string showOperations(double operations);
/// "0 to 2", or "1" where both are.
std::string showRange(int64_t from, int64_t to);

/// A table, whose cells are escaped. The number of columns is that of `names`.
class Table {
public:
  Table(llvm::ArrayRef<llvm::StringRef> names, llvm::raw_ostream &os);
  ~Table();
  Table(const Table &) = delete;
  Table &operator=(const Table &) = delete;

  /// Cells that are one number, with a unit or without, are on the right of
  /// their column.
  void addRow(llvm::ArrayRef<std::string> cells, const Keys &keys = {});

private:
  llvm::raw_ostream &os;
};

/// A drawing of so many units, which are pixels where there is room.
class Drawing {
public:
  Drawing(double width, double height, llvm::StringRef label,
          llvm::raw_ostream &os);
  ~Drawing();
  Drawing(const Drawing &) = delete;
  Drawing &operator=(const Drawing &) = delete;

  /// `style` is a class of the style sheet. `tip` is shown at the pointer.
  void box(double x, double y, double width, double height,
           llvm::StringRef style, const Keys &keys = {},
           llvm::StringRef tip = {});
  void text(double x, double y, llvm::StringRef style, llvm::StringRef text);
  /// One that is cut to `width`, which begins at x.
  void fittedText(double x, double y, double width, llvm::StringRef style,
                  llvm::StringRef text);
  void line(double x1, double y1, double x2, double y2, llvm::StringRef style);
  /// From point to point, with a head at the last one.
  void arrow(llvm::ArrayRef<std::pair<double, double>> points);
  void curve(llvm::ArrayRef<std::pair<double, double>> points,
             llvm::StringRef style);
  void dot(double x, double y, llvm::StringRef style, const Keys &keys,
           llvm::StringRef tip);

private:
  llvm::raw_ostream &os;
};

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_HTML_H
