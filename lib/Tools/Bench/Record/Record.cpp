//===- Record.cpp - the record of moe-bench ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Record.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;
using moert::Status;

void Record::setNote(llvm::StringRef key, llvm::json::Value value) {
  notes[key] = std::move(value);
}

void Record::setRow(const std::string &name, llvm::json::Object row) {
  rows[name] = std::move(row);
}

const llvm::json::Object *Record::find(const std::string &name) const {
  auto found = rows.find(name);
  return found == rows.end() ? nullptr : &found->second;
}

bool Record::isMeasured(const std::string &name) const {
  const llvm::json::Object *row = find(name);
  return row && row->getString("status") == llvm::StringRef("measured");
}

Status Record::resume(const std::string &path, llvm::StringRef field) {
  moert::Result<llvm::json::Object> object = read(path, "rows");
  if (!object)
    return object.status();
  for (const llvm::json::Value &value : *object->getArray("rows")) {
    const llvm::json::Object *row = value.getAsObject();
    if (row && row->getString("status") == llvm::StringRef("measured") &&
        row->get(field))
      rows[row->getString("row").value_or("").str()] = *row;
  }
  return Status::ok();
}

/// Writes numbers with five digits, sorted by name, for readability.
static void writeValue(llvm::json::OStream &json,
                       const llvm::json::Value &value) {
  if (const llvm::json::Object *object = value.getAsObject()) {
    std::vector<llvm::StringRef> keys;
    for (const auto &[key, member] : *object)
      keys.push_back(key);
    llvm::sort(keys);
    json.object([&] {
      for (llvm::StringRef key : keys) {
        json.attributeBegin(key);
        writeValue(json, *object->get(key));
        json.attributeEnd();
      }
    });
  } else if (const llvm::json::Array *array = value.getAsArray()) {
    json.array([&] {
      for (const llvm::json::Value &element : *array)
        writeValue(json, element);
    });
  } else if (value.kind() == llvm::json::Value::Number &&
             !value.getAsInteger()) {
    json.rawValue([&](llvm::raw_ostream &os) {
      os << llvm::format("%.5g", *value.getAsNumber());
    });
  } else {
    json.value(value);
  }
}

Status Record::write(const std::string &path,
                     const std::vector<std::string> &names) const {
  return DeviceRecord::write(path, "moe_bench", [&](llvm::json::OStream &json) {
    auto setJson = [&](llvm::StringRef key, const llvm::json::Value &value) {
      json.attributeBegin(key);
      writeValue(json, value);
      json.attributeEnd();
    };
    auto writeRow = [&](const llvm::json::Object &row) {
      writeLine(json, [&](llvm::json::OStream &line) {
        writeValue(line, llvm::json::Object(row));
      });
    };
    setJson("ceilings", llvm::json::Object{{"bandwidth", ceilings.bandwidth},
                                           {"bf16", ceilings.bf16},
                                           {"fp8", ceilings.fp8},
                                           {"source", ceilings.source}});
    for (const auto &[key, value] : notes)
      setJson(key, value);
    json.attributeArray("rows", [&] {
      for (const std::string &name : names)
        if (const llvm::json::Object *row = find(name))
          writeRow(*row);
      for (const auto &[name, row] : rows)
        if (!llvm::is_contained(names, name))
          writeRow(row);
    });
  });
}

static std::string print(const llvm::json::Object &row, llvm::StringRef key,
                         const char *format) {
  std::optional<double> value = row.getNumber(key);
  return value ? llvm::formatv(format, *value).str() : "-";
}

void moec::bench::printHeader(llvm::raw_ostream &os) {
  os << llvm::formatv("{0,-22} {1,9} {2,6} {3,9} {4,6} {5,9} {6,6} {7,7} "
                      "{8,7} {9,9} {10,9}\n",
                      "row", "us", "spread", "floor us", "of it", "peer us",
                      "of its", "speedup", "of sus.", "router us", "error");
}

void moec::bench::printRow(const llvm::json::Object &row,
                           llvm::raw_ostream &os) {
  llvm::StringRef name = row.getString("row").value_or("");
  llvm::StringRef status = row.getString("status").value_or("");
  os << llvm::formatv("{0,-22} ", name);
  if (status != "measured") {
    os << status << ": "
       << row.getString("reason").value_or("").split('\n').first << "\n";
    return;
  }
  os << llvm::formatv(
      "{0,9} {1,6} {2,9} {3,6} {4,9} {5,6} {6,7} {7,7} {8,9} {9,9}\n",
      print(row, "us", "{0:F1}"), print(row, "spread", "{0:P1}"),
      print(row, "floor_us", "{0:F1}"), print(row, "fraction", "{0:F3}"),
      print(row, "peer_us", "{0:F1}"), print(row, "peer_fraction", "{0:F3}"),
      print(row, "speedup", "{0:F3}"),
      print(row, "sustained_fraction", "{0:F3}"),
      print(row, "router_us", "{0:F1}"), print(row, "error", "{0:e1}"));
  for (llvm::StringRef prefix : {"", "router_"})
    if (std::optional<double> us =
            row.getNumber(("beside_" + prefix + "us").str()))
      os << llvm::formatv(
          "  --beside: {0}{1:F1} us, {2:F3} of it\n",
          prefix.empty() ? "" : "with the router ", *us,
          *us / row.getNumber((prefix + "us").str()).value_or(NAN));
  if (std::optional<double> ratio = row.getNumber("dense_ratio"))
    os << llvm::formatv("  one expert takes all tokens: {0:F3} times the dense "
                        "product of that size\n",
                        *ratio);
}

void moec::bench::printSummary(
    const std::vector<const llvm::json::Object *> &rows,
    llvm::raw_ostream &os) {
  auto printMean = [&](llvm::StringRef key, llvm::StringRef what) {
    double sum = 0;
    int64_t count = 0;
    for (const llvm::json::Object *row : rows)
      if (std::optional<double> value = row->getNumber(key);
          value && *value > 0) {
        sum += std::log(*value);
        ++count;
      }
    if (count > 0)
      os << llvm::formatv("{0}: {1:F3} (geometric mean of {2} rows)\n", what,
                          std::exp(sum / static_cast<double>(count)), count);
  };
  printMean("fraction", "fraction of the floor");
  printMean("peer_fraction", "best peers' fraction of their floor");
  printMean("speedup", "speedup over the best peers, at equal ceilings");
  printMean("dense_speedup", "speedup if cuBLAS's dense products took as long");
  printMean("dense_drift", "cuBLAS's dense products now against then");
  printMean("torch_drift", "torch._grouped_mm now against then");
}
