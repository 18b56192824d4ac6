//===- Html.cpp - HTML and SVG text -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Html.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec::report;
using llvm::ArrayRef;
using llvm::formatv;
using llvm::raw_ostream;
using llvm::StringRef;

std::string moec::report::escape(StringRef text) {
  std::string escaped;
  for (char c : text)
    switch (c) {
    case '&':
      escaped += "&amp;";
      break;
    case '<':
      escaped += "&lt;";
      break;
    case '>':
      escaped += "&gt;";
      break;
    case '"':
      escaped += "&quot;";
      break;
    case '\'':
      escaped += "&#39;";
      break;
    default:
      escaped += c;
    }
  return escaped;
}

std::string moec::report::showKeys(const Keys &keys) {
  if (keys.empty())
    return {};
  std::string words;
  for (std::string key : keys) {
    // Keys are separated by spaces.
    for (char &c : key)
      c = llvm::isSpace(c) ? '_' : c;
    words += (words.empty() ? "" : " ") + key;
  }
  return " data-keys=\"" + escape(words) + "\"";
}

std::string moec::report::showTime(double us) {
  return us < 1000 ? formatv("{0:f1} us", us).str()
                   : formatv("{0:f2} ms", us / 1000).str();
}

std::string moec::report::showBytes(double bytes) {
  if (bytes < 1024)
    return formatv("{0:f0} B", bytes);
  if (bytes < 1024 * 1024)
    return formatv("{0:f1} KiB", bytes / 1024);
  if (bytes < 1024.0 * 1024 * 1024)
    return formatv("{0:f1} MiB", bytes / 1024 / 1024);
  return formatv("{0:f2} GiB", bytes / 1024 / 1024 / 1024);
}

std::string moec::report::showOperations(double operations) {
  if (operations < 1e9)
    return formatv("{0:f1} Mop", operations / 1e6);
  if (operations < 1e12)
    return formatv("{0:f1} Gop", operations / 1e9);
  return formatv("{0:f2} Top", operations / 1e12);
}

std::string moec::report::showRange(int64_t from, int64_t to) {
  return from == to ? std::to_string(from)
                    : formatv("{0} to {1}", from, to).str();
}

Table::~Table() {
  llvm::SmallVector<bool> isShown;
  for (size_t i = 0; i < names.size(); ++i)
    isShown.push_back(llvm::any_of(rows, [&](const Row &row) {
      return i < row.cells.size() && !row.cells[i].empty();
    }));
  os << "<div class=\"wide\"><table><thead><tr>";
  for (auto [name, shown] : llvm::zip(names, isShown))
    if (shown)
      os << "<th>" << escape(name) << "</th>";
  os << "</tr></thead><tbody>\n";
  for (const Row &row : rows)
    print(row, isShown);
  os << "</tbody></table></div>\n";
}

void Table::addRow(ArrayRef<std::string> cells, const Keys &keys) {
  rows.push_back({llvm::SmallVector<std::string>(cells), keys});
}

void Table::print(const Row &row, ArrayRef<bool> isShown) {
  os << "<tr" << showKeys(row.keys) << ">";
  for (auto [cell, shown] : llvm::zip(row.cells, isShown)) {
    if (!shown)
      continue;
    bool isNumber = !cell.empty() && llvm::isDigit(cell.front()) &&
                    !StringRef(cell).contains(",") &&
                    !StringRef(cell).contains(" to ");
    os << (isNumber ? "<td class=\"number\">" : "<td>") << escape(cell)
       << "</td>";
  }
  os << "</tr>\n";
}

Drawing::Drawing(double width, double height, StringRef label, raw_ostream &os)
    : os(os) {
  // Smaller text could not be read: narrower windows scroll.
  constexpr double least = 0.75;
  os << formatv("<div class=\"wide\"><svg viewBox=\"0 0 {0:f0} {1:f0}\" "
                "style=\"min-width:{2:f0}px;max-width:{0:f0}px\" "
                "role=\"img\" aria-label=\"{3}\">\n",
                width, height, least * width, escape(label));
}

Drawing::~Drawing() { os << "</svg></div>\n"; }

void Drawing::box(double x, double y, double width, double height,
                  StringRef style, const Keys &keys, StringRef tip) {
  os << formatv("<rect class=\"{0}\" x=\"{1:f1}\" y=\"{2:f1}\" width=\"{3:f1}\""
                " height=\"{4:f1}\" rx=\"3\"{5}>",
                style, x, y, width, height, showKeys(keys));
  if (!tip.empty())
    os << "<title>" << escape(tip) << "</title>";
  os << "</rect>\n";
}

void Drawing::text(double x, double y, StringRef style, StringRef text) {
  os << formatv("<text class=\"{0}\" x=\"{1:f1}\" y=\"{2:f1}\">{3}</text>\n",
                style, x, y, escape(text));
}

void Drawing::fittedText(double x, double y, double width, StringRef style,
                         StringRef text) {
  // Upper bound on the mean width of a letter in the style sheet.
  constexpr double letter = 6.4;
  auto limit = size_t(std::max(0.0, width / letter));
  if (text.size() <= limit)
    return this->text(x, y, style, text);
  if (limit > 3)
    this->text(x, y, style, (text.take_front(limit - 1) + "\u2026").str());
}

void Drawing::line(double x1, double y1, double x2, double y2,
                   StringRef style) {
  os << formatv("<line class=\"{0}\" x1=\"{1:f1}\" y1=\"{2:f1}\" x2=\"{3:f1}\" "
                "y2=\"{4:f1}\"/>\n",
                style, x1, y1, x2, y2);
}

static std::string showPoints(ArrayRef<std::pair<double, double>> points) {
  std::string text;
  for (auto [x, y] : points)
    text += formatv("{0:f1},{1:f1} ", x, y);
  return text;
}

void Drawing::arrow(ArrayRef<std::pair<double, double>> points) {
  os << "<polyline class=\"arrow\" points=\"" << showPoints(points) << "\"/>\n";
  auto [x, y] = points.back();
  auto [fromX, fromY] = points[points.size() - 2];
  constexpr double head = 5;
  double dx = (x > fromX) - (x < fromX), dy = (y > fromY) - (y < fromY);
  os << "<polygon class=\"head\" points=\""
     << showPoints(
            {{x, y},
             {x - (2 * dx + dy) * head / 1.6, y - (2 * dy - dx) * head / 1.6},
             {x - (2 * dx - dy) * head / 1.6, y - (2 * dy + dx) * head / 1.6}})
     << "\"/>\n";
}

void Drawing::curve(ArrayRef<std::pair<double, double>> points,
                    StringRef style) {
  os << "<polyline class=\"" << style << "\" points=\"" << showPoints(points)
     << "\"/>\n";
}

void Drawing::dot(double x, double y, StringRef style, const Keys &keys,
                  StringRef tip) {
  os << formatv("<circle class=\"{0}\" cx=\"{1:f1}\" cy=\"{2:f1}\" r=\"4.5\""
                "{3}><title>{4}</title></circle>\n",
                style, x, y, showKeys(keys), escape(tip));
}
