//===- TextTable.h - columns as wide as what is in them ---------*- C++ -*-===//
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

/// Rows of text, the first of which has the names of the columns. All is on the
/// left of its column; numbers come padded.
class TextTable {
public:
  using Row = llvm::SmallVector<std::string>;

  explicit TextTable(Row names) : rows{std::move(names)} {}

  /// As many cells as there are names.
  void addRow(Row cells) { rows.push_back(std::move(cells)); }

  /// A column with nothing but its name is left out.
  void print(llvm::raw_ostream &os) const;

private:
  llvm::SmallVector<Row> rows;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_TEXTTABLE_H
