//===- TextTable.h - tables of text -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_TEXTTABLE_H
#define MOEC_LIB_TOOLS_TEXTTABLE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace moec {

/// A table of text whose first row has the column names. All cells are
/// left-aligned; the caller pads numbers.
class TextTable {
public:
  using Row = llvm::SmallVector<std::string>;

  explicit TextTable(Row names) : rows{std::move(names)} {}

  void addRow(Row cells) { rows.push_back(std::move(cells)); }

  /// Prints the table without columns that are empty below their name.
  void print(llvm::raw_ostream &os) const;

private:
  llvm::SmallVector<Row> rows;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_TEXTTABLE_H
