//===- Record.h - the results of moe-bench ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RECORD_RECORD_H
#define MOEC_LIB_TOOLS_BENCH_RECORD_RECORD_H

#include "../../OnDevice/DeviceRecord.h"
#include "../Rows/Rows.h"
#include "llvm/Support/raw_ostream.h"

namespace moec::bench {

/// A file of results: what was measured where, and an object per row.
class Record : public DeviceRecord {
public:
  using DeviceRecord::DeviceRecord;

  /// Keeps the measured rows of a record of the same build on the same device,
  /// those with a field: a table, tuning and profiles have others.
  moert::Status resume(const std::string &path, llvm::StringRef field);
  void setCeilings(const Ceilings &ceilings) { this->ceilings = ceilings; }
  /// Sets a note on the file, e.g. what the yardstick says of itself.
  void setNote(llvm::StringRef key, llvm::json::Value value);
  /// Replaces the row of that name.
  void setRow(const std::string &name, llvm::json::Object row);
  /// Null if there is none.
  const llvm::json::Object *find(const std::string &name) const;
  bool isMeasured(const std::string &name) const;

  /// Rows in the order of `names`, then all others.
  moert::Status write(const std::string &path,
                      const std::vector<std::string> &names) const;

private:
  Ceilings ceilings;
  llvm::json::Object notes;
  std::map<std::string, llvm::json::Object> rows;
};

/// A line of a measured row, and the line above such lines.
void printHeader(llvm::raw_ostream &os);
void printRow(const llvm::json::Object &row, llvm::raw_ostream &os);
/// Geometric means over the measured rows.
void printSummary(const std::vector<const llvm::json::Object *> &rows,
                  llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RECORD_RECORD_H
