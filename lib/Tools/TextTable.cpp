//===- TextTable.cpp - tables of text ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TextTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace moec;

void TextTable::print(llvm::raw_ostream &os) const {
  llvm::SmallVector<size_t> widths;
  for (auto [column, name] : llvm::enumerate(rows.front())) {
    size_t most = 0;
    for (const Row &row : llvm::drop_begin(rows))
      most = std::max(most, row[column].size());
    widths.push_back(most == 0 ? 0 : std::max(most, name.size()));
  }
  for (const Row &row : rows) {
    std::string line;
    for (auto [cell, width] : llvm::zip(row, widths)) {
      if (width == 0)
        continue;
      line += "  " + cell;
      line.append(width - cell.size(), ' ');
    }
    os << llvm::StringRef(line).rtrim() << "\n";
  }
}
