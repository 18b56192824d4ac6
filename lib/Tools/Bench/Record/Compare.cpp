//===- Compare.cpp - compares two records by row ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Compare.h"

#include "../TryStatus.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

namespace {

/// The measured rows of a record, and their order.
struct Rows {
  std::vector<std::string> names;
  std::map<std::string, const llvm::json::Object *> byName;
};

Result<Rows> readRows(const llvm::json::Value &record, const char *which) {
  const llvm::json::Object *object = record.getAsObject();
  const llvm::json::Array *rows = object ? object->getArray("rows") : nullptr;
  if (!rows || object->getString("benchmark") != llvm::StringRef("moe_bench"))
    return moert::invalidArgument(std::string("--compare: the ") + which +
                                  " file is not a record of moe-bench");
  Rows found;
  for (const llvm::json::Value &value : *rows) {
    const llvm::json::Object *row = value.getAsObject();
    if (!row || row->getString("status") != llvm::StringRef("measured"))
      continue;
    std::string name = row->getString("row").value_or("").str();
    if (found.byName.try_emplace(name, row).second)
      found.names.push_back(name);
  }
  return found;
}

} // namespace

Result<int64_t> moec::bench::compareRecords(const llvm::json::Value &before,
                                            const llvm::json::Value &after,
                                            double tolerance,
                                            llvm::raw_ostream &os) {
  Rows old, now;
  MOEC_TRY_ASSIGN(old, readRows(before, "old"));
  MOEC_TRY_ASSIGN(now, readRows(after, "new"));
  std::string device =
      before.getAsObject()->getString("device").value_or("").str();
  if (after.getAsObject()->getString("device") != llvm::StringRef(device))
    return moert::invalidArgument(
        "--compare: the old record is of '" + device +
        "', the new one of another device; compare records of one");
  os << llvm::formatv("{0,-22} {1,9} {2,9} {3,8} {4,8} {5,8}\n", "row",
                      "old us", "new us", "old frac", "new frac", "speedup");
  int64_t numWorse = 0, count = 0;
  double sum = 0;
  for (const std::string &name : old.names) {
    const llvm::json::Object &was = *old.byName[name];
    std::optional<double> wasUs = was.getNumber("us"),
                          wasFraction = was.getNumber("fraction");
    if (!wasUs || !wasFraction)
      continue;
    auto found = now.byName.find(name);
    std::optional<double> us, fraction;
    if (found != now.byName.end()) {
      us = found->second->getNumber("us");
      fraction = found->second->getNumber("fraction");
    }
    if (!us || !fraction) {
      os << llvm::formatv("{0,-22} {1,9:F1} {2,9}  LOST\n", name, *wasUs, "-");
      ++numWorse;
      continue;
    }
    double speedup = *fraction / *wasFraction;
    bool isWorse = speedup < 1 - tolerance;
    os << llvm::formatv(
        "{0,-22} {1,9:F1} {2,9:F1} {3,8:F3} {4,8:F3} {5,8:F3}{6}\n", name,
        *wasUs, *us, *wasFraction, *fraction, speedup,
        isWorse ? "  SLOWER" : "");
    numWorse += isWorse;
    sum += std::log(speedup);
    ++count;
  }
  if (count > 0)
    os << llvm::formatv("{0} rows, speedup {1:F3} (geometric mean)\n", count,
                        std::exp(sum / static_cast<double>(count)));
  else if (numWorse == 0)
    return moert::invalidArgument(
        "--compare: the old record has no row with a time");
  os << llvm::formatv("{0} rows slower by more than {1:P1}, or lost\n",
                      numWorse, tolerance);
  return numWorse;
}
