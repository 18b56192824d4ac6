//===- Html.h - HTML and SVG text -------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_HTML_H
#define MOEC_LIB_TOOLS_REPORT_HTML_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <set>
#include <string>
#include <vector>

namespace moec::report {

/// Escapes a text for HTML and SVG, between tags or in an attribute.
std::string escape(llvm::StringRef text);

/// Names of tensors, and of kernels after "@", that a part of a page is about.
/// Parts with a common name are highlighted together.
using Keys = std::set<std::string>;

/// The attribute ` data-keys="..."`, or an empty string without keys.
std::string showKeys(const Keys &keys);

/// "3.2 us", "1.4 ms".
std::string showTime(double us);
/// "512 B", "1.5 KiB", "3.0 MiB".
std::string showBytes(double bytes);
/// "12.5 Mop", "1.4 Gop".
std::string showOperations(double operations);
/// "0 to 2", or "1" if both are 1.
std::string showRange(int64_t from, int64_t to);

/// A table with escaped cells and a column per name. Columns without any text
/// are left out. The table is written when the object ends.
class Table {
public:
  Table(llvm::ArrayRef<llvm::StringRef> names, llvm::raw_ostream &os)
      : names(llvm::to_vector_of<std::string>(names)), os(os) {}
  ~Table();
  Table(const Table &) = delete;
  Table &operator=(const Table &) = delete;

  /// Right-aligns cells that are one number, with or without a unit.
  void addRow(llvm::ArrayRef<std::string> cells, const Keys &keys = {});

private:
  struct Row {
    llvm::SmallVector<std::string> cells;
    Keys keys;
  };
  void print(const Row &row, llvm::ArrayRef<bool> isShown);

  llvm::SmallVector<std::string> names;
  std::vector<Row> rows;
  llvm::raw_ostream &os;
};

/// An SVG drawing. Its units are pixels, or up to a quarter less if the window
/// is narrower; then it scrolls.
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
  /// Draws a text from x on, shortened to `width`.
  void fittedText(double x, double y, double width, llvm::StringRef style,
                  llvm::StringRef text);
  void line(double x1, double y1, double x2, double y2, llvm::StringRef style);
  /// Draws a polyline with an arrow head at the last point.
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
