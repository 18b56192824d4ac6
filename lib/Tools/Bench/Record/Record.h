//===- Record.h - the record of moe-bench -----------------------*- C++ -*-===//
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

/// A file of results: build, device and time of the measurement, and an object
/// per row.
class Record : public DeviceRecord {
public:
  using DeviceRecord::DeviceRecord;

  /// Keeps the measured rows that have `field`, from a record of the same build
  /// on the same device. A table, tuning and profiles have different fields.
  moert::Status resume(const std::string &path, llvm::StringRef field);
  void setCeilings(const Ceilings &ceilings) { this->ceilings = ceilings; }
  /// Sets a note on the file, e.g. the yardstick's description of itself.
  void setNote(llvm::StringRef key, llvm::json::Value value);
  /// Replaces the row of that name.
  void setRow(const std::string &name, llvm::json::Object row);
  /// Null if there is none.
  const llvm::json::Object *find(const std::string &name) const;
  bool isMeasured(const std::string &name) const;

  /// Writes the rows in the order of `names`, then all others.
  moert::Status write(const std::string &path,
                      const std::vector<std::string> &names) const;

private:
  Ceilings ceilings;
  llvm::json::Object notes;
  std::map<std::string, llvm::json::Object> rows;
};

/// Prints the heading of rows, and a measured row.
void printHeader(llvm::raw_ostream &os);
void printRow(const llvm::json::Object &row, llvm::raw_ostream &os);
void printSummary(const std::vector<const llvm::json::Object *> &rows,
                  llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RECORD_RECORD_H
