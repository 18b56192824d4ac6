//===- Measured.cpp - measured times of a layer -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Measured.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace moec::report;
using llvm::StringRef;
using mlir::failure;
using mlir::FailureOr;

/// Whether experts are equally likely, as predictions assume.
static bool isUniform(const llvm::json::Object &row) {
  return row.getString("routing").value_or("uniform") == "uniform";
}

/// A row without times has neither the layer's nor kernels'.
static MeasuredRow readRow(const llvm::json::Object &object) {
  MeasuredRow row;
  row.tokens = object.getInteger("tokens").value_or(0);
  row.us = object.getNumber("us");
  if (!row.us)
    row.us = object.getNumber("graph_us");
  const llvm::json::Array *kernels = object.getArray("launches");
  if (!kernels)
    kernels = object.getArray("kernels");
  if (!kernels)
    return row;
  for (const llvm::json::Value &value : *kernels) {
    const llvm::json::Object *kernel = value.getAsObject();
    if (!kernel)
      continue;
    auto name = kernel->getString("kernel");
    auto us = kernel->getNumber("us");
    if (name && us && *us > 0)
      row.kernels[name->str()] = *us;
  }
  return row;
}

FailureOr<Measured> moec::report::readMeasured(StringRef name, StringRef json,
                                               std::optional<std::string> layer,
                                               llvm::raw_ostream &os) {
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value) {
    os << name << ": " << llvm::toString(value.takeError()) << "\n";
    return failure();
  }
  const llvm::json::Object *results = value->getAsObject();
  const llvm::json::Array *rows = results ? results->getArray("rows") : nullptr;
  if (!rows) {
    os << name << ": has no array 'rows'; give what moe-bench --json writes\n";
    return failure();
  }
  Measured measured;
  measured.device = results->getString("device").value_or("a device").str();
  llvm::SetVector<StringRef> layers;
  for (const llvm::json::Value &item : *rows) {
    const llvm::json::Object *object = item.getAsObject();
    if (!object || !isUniform(*object))
      continue;
    MeasuredRow row = readRow(*object);
    if (row.tokens < 1 || (!row.us && row.kernels.empty()))
      continue;
    StringRef of = object->getString("layer").value_or("");
    layers.insert(of);
    if (!layer || of == *layer)
      measured.rows.push_back(std::move(row));
  }
  if (!layer && layers.size() > 1) {
    os << name << ": has rows of the layers " << llvm::join(layers, ", ")
       << "; give those of one, as --measured=" << name << ":" << layers.front()
       << " does\n";
    return failure();
  }
  if (measured.rows.empty()) {
    os << name << ": has no rows" << (layer ? " of layer '" + *layer + "'" : "")
       << " with 'tokens' and times"
       << (layers.empty() ? "" : "; its layers are " + llvm::join(layers, ", "))
       << "\n";
    return failure();
  }
  llvm::sort(measured.rows, [](const MeasuredRow &a, const MeasuredRow &b) {
    return a.tokens < b.tokens;
  });
  return measured;
}
